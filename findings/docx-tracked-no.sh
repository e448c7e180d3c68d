#!/bin/sh
# python-docx 1.2.0: `paragraph.text` leaves out what was inserted while changes are tracked, and what stands in a
# form field (a content control): "There is no effusion" with the "no" put in by a second reader is "There is
# effusion", and "Pneumothorax: none" of a template is "Pneumothorax:". docx2txt 0.9, mammoth 1.13.0 and
# docx2python 3.7.1 read both. Guess: the text as Word shows it. Seen: below. So: a corrected report is read as
# its opposite, in silence. Accept changes first, or read by another of the three.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" python-docx==1.2.0 docx2txt==0.9 mammoth==1.13.0 docx2python==3.7.1
PYTHONPATH="$site" python3 -W ignore - "$site" <<'EOF'
import sys

import docx
import docx2txt
import mammoth
from docx2python import docx2python
from docx.oxml import parse_xml

PLACE = sys.argv[1] + "/report.docx"
NAMES = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
WHO = 'w:author="second reader" w:date="2026-01-01T00:00:00Z"'


def run(text, tag="t"):
    """Return a run of Word's XML."""
    return f'<w:r><w:{tag} xml:space="preserve">{text}</w:{tag}></w:r>'


document = docx.Document()
for parts in (
    run("There is ") + f'<w:ins w:id="1" {WHO}>{run("no ")}</w:ins>' + run("effusion."),
    run("Pneumothorax: ") + '<w:sdt><w:sdtPr><w:id w:val="7"/></w:sdtPr><w:sdtContent>' + run("none")
    + "</w:sdtContent></w:sdt>" + run("."),
    run("There is ") + f'<w:del w:id="2" {WHO}>{run("no ", "delText")}</w:del>' + run("edema."),
):
    document.element.body.insert(-1, parse_xml(f"<w:p {NAMES}>{parts}</w:p>"))
document.save(PLACE)

with open(PLACE, "rb") as file, docx2python(PLACE) as structured:
    texts = {
        "python-docx": "\n".join(paragraph.text for paragraph in docx.Document(PLACE).paragraphs),
        "docx2txt": docx2txt.process(PLACE),
        "mammoth": mammoth.extract_raw_text(file).value,
        "docx2python": structured.text,
    }
for name, text in texts.items():
    print(name, text.split("\n"))
    lines = [line for line in text.split("\n") if line]
    if name == "python-docx":
        assert lines == ["There is effusion.", "Pneumothorax: .", "There is edema."]
    else:
        assert lines == ["There is no effusion.", "Pneumothorax: none.", "There is edema."], name
EOF
