#!/bin/sh
# json_repair 0.64.6 mends the answer of a judge that is not JSON, and what it makes of a number depends on the sign
# behind it: "0,5" and "1/2" stay text, "1:2" and "10:30" become the number before the colon, ">2" and "~2" lose
# their sign, and of two answers in a row with the same key the last alone is left. Guess: text for all.
# Seen: below. So: a count out of a mended answer is checked against the text, or the judge is asked again.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" json_repair==0.64.6
PYTHONPATH="$site" python3 - <<'EOF'
import json_repair

expected = {
    '{"errors": 0,5}': {"errors": "0,5"},
    '{"errors": 1/2}': {"errors": "1/2"},
    '{"errors": 1:2}': {"errors": 1},
    '{"time": 10:30, "errors": 2}': {"time": 10, "errors": 2},
    '{"errors": >2}': {"errors": 2},
    '{"errors": ~2}': {"errors": 2},
    '{"errors": 3} {"errors": 4}': {"errors": 4},
    'First: {"errors": 3}. Then: {"errors": 4}.': {"errors": 4},
}
for answer, value in expected.items():
    mended = json_repair.loads(answer)
    print(answer, "is read as", mended)
    assert repr(mended) == repr(value), answer
EOF
