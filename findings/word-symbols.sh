#!/bin/sh
# Word keeps a sign from its Insert Symbol dialogue as `w:sym`, font Symbol, and a formula as `m:oMath`: python-docx 1.2.0
# and docx2txt 0.9 leave both out, "nodule ≤ 5 mm" is "nodule  5 mm" and "mass of 1.5×2 cm" is "mass of  cm". mammoth 1.13.0
# has the sign, not the formula (with a warning). Saved as RTF the same sign is "£" by striprtf 0.0.35 and ≥ is "³", since a
# font's charset of symbols is read as Latin letters. Guess: ≤, or some sign, by all. Seen: below. So: a size lost its
# bound, or a mass its size, before any labeller sees the text. Count `w:sym` and `m:oMath` in document.xml.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" python-docx==1.2.0 docx2txt==0.9 mammoth==1.13.0 striprtf==0.0.35 lxml==6.1.3
PYTHONPATH="$site" python3 - "$site" <<'PY'
import sys

import docx
import docx2txt
import mammoth
from docx.oxml import parse_xml
from striprtf.striprtf import rtf_to_text

OFFICE = "http://schemas.openxmlformats.org/"
SPACES = f'xmlns:w="{OFFICE}wordprocessingml/2006/main" xmlns:m="{OFFICE}officeDocument/2006/math"'
PARTS = {"nodule ≤ 5 mm": ("nodule ", '<w:r><w:sym w:font="Symbol" w:char="F0A3"/></w:r>', " 5 mm"),
         "mass of 1.5×2 cm": ("mass of ", "<m:oMath><m:r><m:t>1.5×2</m:t></m:r></m:oMath>", " cm")}


def run(text):
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


path = f"{sys.argv[1]}/report.docx"
document = docx.Document()
for before, between, behind in PARTS.values():
    document.element.body.insert(-1, parse_xml(f"<w:p {SPACES}>{run(before)}{between}{run(behind)}</w:p>"))
document.save(path)
with open(path, "rb") as file:
    by_mammoth = mammoth.extract_raw_text(file).value
TEXTS = {
    "python-docx": [paragraph.text for paragraph in docx.Document(path).paragraphs],
    "docx2txt": [line for line in docx2txt.process(path).splitlines() if line],
    "mammoth": [line for line in by_mammoth.splitlines() if line],
}
for name, lines in TEXTS.items():
    print(f"{name}: {lines}")
    assert lines == ["nodule ≤ 5 mm" if name == "mammoth" else "nodule  5 mm", "mass of  cm"]
HEAD = r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fswiss Arial;}{\f1\froman\fcharset2 Symbol;}}\f0 "
for code, sign, read in ((r"\'a3", "≤", "£"), (r"\'b3", "≥", "³"), (r"\'b1", "±", "±")):
    text = rtf_to_text(f"{HEAD}nodule {{\\f1{code}}} 5 mm}}")
    print(f"striprtf, {sign}: {text!r}")
    assert text == f"nodule {read} 5 mm"
PY
