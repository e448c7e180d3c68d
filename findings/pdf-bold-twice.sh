#!/bin/sh
# A PDF that makes bold by printing a line twice, a tenth of a millimetre apart: pdfplumber
# 0.11.10 reads "NNoo eeffffuussiioonn..", pypdf 7.1.1 "No effusion.No effusion.", pdfminer.six 20260107 and PyMuPDF 2.0 the
# sentence on two lines. Guess: once by all. Seen: below. So: an impression that is printed in bold stands twice in the
# reference, or is no word at all; ROUGE and counts of findings follow. pdfplumber's `page.dedupe_chars()` mends its own.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" fpdf2==2.8.9 pypdf==7.1.1 pdfminer.six==20260107 pdfplumber==0.11.10 PyMuPDF==2.0
PYTHONPATH="$site" python3 -W ignore - "$site" <<'PY'
import sys

import pdfplumber
import pymupdf
import pypdf
from fpdf import FPDF
from pdfminer.high_level import extract_text

path = f"{sys.argv[1]}/report.pdf"
pages = FPDF()
pages.add_page()
pages.set_font("helvetica", size=11)
pages.text(20, 20, "No effusion.")
pages.text(20.1, 20, "No effusion.")
pages.text(20, 30, "Heart size is normal.")
pages.output(path)
with pdfplumber.open(path) as opened:
    plumbed, deduped = opened.pages[0].extract_text(), opened.pages[0].dedupe_chars().extract_text()
with pymupdf.open(path) as opened:
    by_mupdf = opened[0].get_text()
TEXTS = {"pypdf": pypdf.PdfReader(path).pages[0].extract_text(), "pdfminer.six": extract_text(path), "PyMuPDF": by_mupdf,
         "pdfplumber": plumbed, "pdfplumber, dedupe_chars": deduped}
for name, text in TEXTS.items():
    print(f"{name}: {text.split(chr(10))}")
    assert text.count("No effusion.") == {"pdfplumber": 0, "pdfplumber, dedupe_chars": 1}.get(name, 2)
    assert text.count("Heart size is normal.") == 1
assert "NNoo eeffffuussiioonn.." in plumbed
PY
