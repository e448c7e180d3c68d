#!/bin/sh
# thefuzz 0.22.1: `token_sort_ratio` of "3.5 cm" and "5.3 cm" is 100, as of "<5 mm" and ">5 mm", "-1.0" and "1.0", "T1-T2"
# and "T2/T1": marks become blanks first, then the words are sorted, so that a point falls apart. RapidFuzz 3.14.6, on
# which it rests, leaves the text alone unless `default_process` is handed in, and says 40 to 86. Guess: below 100.
# Seen: below. So: studies, labels and references that are matched by it agree on sizes that differ; take
# rapidfuzz without a processor, and compare numbers as numbers.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" thefuzz==0.22.1 rapidfuzz==3.14.6
PYTHONPATH="$site" python3 - <<'PY'
import rapidfuzz
from thefuzz import fuzz

PAIRS = (("3.5 cm", "5.3 cm"), ("<5 mm", ">5 mm"), ("-1.0", "1.0"), ("T1-T2", "T2/T1"),
         ("Nodule, 1.2 x 0.8 cm.", "nodule 0.8 x 1.2 cm"))
for first, second in PAIRS:
    thefuzz, plain = fuzz.token_sort_ratio(first, second), rapidfuzz.fuzz.token_sort_ratio(first, second)
    both = rapidfuzz.fuzz.token_sort_ratio(first, second, processor=rapidfuzz.utils.default_process)
    print(f"{first!r} and {second!r}: thefuzz {thefuzz}, rapidfuzz {plain:.0f}, with default_process {both:.0f}")
    assert thefuzz == both == 100 > plain
assert fuzz.token_sort_ratio("3.5 cm", "3.6 cm") < 100
PY
