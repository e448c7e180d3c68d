#!/bin/sh
# TRL 1.16.0: a DPO row without a prompt column gets as its prompt what both answers begin with, by characters. Of "No
# effusion." and "No edema." that is "No e", the answers are "ffusion." and "dema."; two reports that begin with the
# same normal sentences lose these from what is trained. Guess: cut at a word. Seen: below.
# So: pairs of reports share beginnings. Give the prompt a column of its own, "" where there is none.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" trl==1.16.0 transformers==5.23.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from trl import maybe_extract_prompt

PAIRS = [
    ("No effusion.", "No edema.", "No e"),
    ("The heart is normal. Small left effusion.", "The heart is normal. Small left nodule.",
     "The heart is normal. Small left"),
    ("Edema.", "Effusion.", "E"),
]
for better, worse, cut in PAIRS:
    row = maybe_extract_prompt({"chosen": better, "rejected": worse})
    print(row)
    assert row["prompt"] == cut and cut + row["chosen"] == better
named = maybe_extract_prompt({"prompt": "", "chosen": "No effusion.", "rejected": "No edema."})
print(named)
assert named["chosen"] == "No effusion."
EOF
