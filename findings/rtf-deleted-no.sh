#!/bin/sh
# striprtf 0.0.35 keeps text that a tracked change deleted, and hidden text: "There is {\deleted no }effusion"
# becomes "There is no effusion". The RTF specification (revision marks, 1.9.1) marks by \deleted what is no
# longer part of the text, by \v what is hidden. Guess: both left out. Seen: both kept. So: a finding that a
# second reader put right is denied in the data, and an inserted word stands beside what it replaced.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" striprtf==0.0.35
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from striprtf.striprtf import rtf_to_text

BODY = {
    r"There is {\deleted no }effusion.": "There is no effusion.",
    r"Edema is {\deleted absent }{\revised present}.": "Edema is absent present.",
    r"There is \deleted no \deleted0 mass.": "There is no mass.",
    r"Lungs are clear{\v  (dictated, not read)}.": "Lungs are clear (dictated, not read).",
}
for body, text in BODY.items():
    outcome = rtf_to_text(r"{\rtf1\ansi " + body + r"\par}").strip()
    print(body, "is read as", repr(outcome))
    assert outcome == text
EOF
