#!/bin/sh
# A structured report as a PDF table of finding and answer: pdfminer.six 20260107 gives the column of findings, then the
# column of answers, in which an empty cell is nothing, so that no count puts them together again. Short tables it gives
# row by row. pypdf 7.1.1, pdfplumber 0.11.10 (built on pdfminer.six) and PyMuPDF 2.0 go row by row here.
# Guess: row by row by all. Seen: below.
# So: "yes" becomes another finding's answer, and nothing tells. Look at long pages before a corpus is read.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pdfminer.six==20260107 pdfplumber==0.11.10 pypdf==7.1.1 pymupdf==2.0 reportlab==5.1.0
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import io

import pdfplumber
import pymupdf
from pdfminer.high_level import extract_text
from pypdf import PdfReader
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import Paragraph, SimpleDocTemplate, Table

ROWS = [("Finding", "Seen"), ("Pleural effusion", "no"), ("Nodule", ""), ("Edema", "yes"),
        ("Pneumothorax on the left side after the drain was removed this morning", "small")]
style, file = getSampleStyleSheet()["Normal"], io.BytesIO()
cells = [[Paragraph(text, style) for text in row] for row in ROWS]
SimpleDocTemplate(file).build([Table(cells, colWidths=[150, 60])])

texts = {
    "pdfminer.six": extract_text(io.BytesIO(file.getvalue())),
    "pypdf": PdfReader(io.BytesIO(file.getvalue())).pages[0].extract_text(),
    "pdfplumber": pdfplumber.open(io.BytesIO(file.getvalue())).pages[0].extract_text(),
    "PyMuPDF": pymupdf.open(stream=file.getvalue()).load_page(0).get_text(),
}
for name, text in texts.items():
    words = text.split()
    print(f"{name}: {' '.join(words)}")
    by_row = words.index("no") < words.index("Edema") < words.index("yes") < words.index("Pneumothorax")
    assert by_row == (name != "pdfminer.six")
assert texts["pdfminer.six"].split()[-4:] == ["Seen", "no", "yes", "small"]
EOF
