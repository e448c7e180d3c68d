#!/bin/sh
# quantulum3 0.10.0 takes two numbers with "to" between them for one of their mean: "increased from 5 to 7 mm" is one
# length of 6 mm, 1 uncertain, the reading of "5-7 mm". Of "1.2 x 0.8 cm" the first number has no unit. Guess: two
# lengths in cm. Seen: below. So: a comparison of measurements between report and reference takes growth for a
# steady nodule, and loses the larger side of every mass. Read "from A to B" and "A x B" by rules of one's own.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" quantulum3==0.10.0
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from quantulum3 import parser

TEXTS = {
    "Nodule increased from 5 to 7 mm.": [(6.0, "millimetre")],
    "Nodule of 5-7 mm.": [(6.0, "millimetre")],
    "Nodule of 5 mm, previously 7 mm.": [(5.0, "millimetre"), (7.0, "millimetre")],
    "Mass of 1.2 x 0.8 cm.": [(1.2, "dimensionless"), (0.8, "centimetre")],
}
for text, values in TEXTS.items():
    read = [(quantity.value, quantity.unit.name, quantity.uncertainty) for quantity in parser.parse(text)]
    print(f"{text} {read}")
    assert [row[:2] for row in read] == values
EOF
