#!/bin/sh
# jiter 0.19.0, pydantic_core 2.50.5, json_repair 0.64.6, partial-json-parser 0.2.1.1.post7: an answer that the token limit cuts
# within a number keeps the digits that are there. `{"nodule_mm": 15` without its 5 is a nodule of 1 mm by all four, and 0.85 cut
# behind its stop is 0. Guess: the number is left out. Seen: below.
# So: a reader of partial JSON cannot tell a short number from a cut one. Take the last number only where a comma or a brace stands
# behind it, or ask for the answer's end (finish_reason).
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" jiter==0.19.0 pydantic_core==2.50.5 json_repair==0.64.6 \
    partial-json-parser==0.2.1.1.post7
PYTHONPATH="$site" python3 - <<'EOF'
import jiter
import json_repair
import partial_json_parser
import pydantic_core

whole = '{"side": "left", "nodule_mm": 15}'
cut = whole[:-2]
read = {
    "jiter": jiter.from_json(cut.encode(), partial_mode=True),
    "pydantic_core": pydantic_core.from_json(cut, allow_partial=True),
    "json_repair": json_repair.loads(cut),
    "partial-json-parser": partial_json_parser.loads(cut),
}
print(cut)
for name, answer in read.items():
    print(f"  {name}: {answer}")
assert all(answer == {"side": "left", "nodule_mm": 1} for answer in read.values())
EOF
