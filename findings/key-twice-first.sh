#!/bin/sh
# pysimdjson 7.0.2: of a key that an answer has twice, `document["edema"]` is the first and `document.as_dict()["edema"]` the last.
# json, orjson, pydantic_core, jiter and json_repair take the last. Guess: the last, in every way. Seen: below.
# So: one file of labels has two readings in one library. Read a record by as_dict(), or refuse a key that comes twice.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" pysimdjson==7.0.2 orjson==3.13.0
PYTHONPATH="$site" python3 - <<'EOF'
import json

import orjson
import simdjson

text = '{"edema": 1, "effusion": 0, "edema": 0}'
document = simdjson.Parser().parse(text.encode())
read = {
    "json": json.loads(text)["edema"],
    "orjson": orjson.loads(text)["edema"],
    "simdjson, as_dict": document.as_dict()["edema"],
    "simdjson, by key": document["edema"],
    "simdjson, by pointer": document.at_pointer("/edema"),
}
print(read)
assert list(read.values()) == [0, 0, 0, 1, 1]
EOF
