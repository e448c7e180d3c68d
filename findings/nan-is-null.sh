#!/bin/sh
# orjson 3.13.0 and msgspec 0.23.0 write NaN and infinity as null, without a word; ujson 6.1.0 and Python's json write
# NaN and Infinity. Behind a round trip a diverged loss is what was never measured. Guess: refused, or NaN and Infinity.
# Seen: below. orjson's page says so.
# So: who looks for a run that broke among metrics written by them, by `isnan`, meets None: a TypeError at best, and a
# mean that leaves it out where a table reads it as missing. Write the word, or a flag beside it.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" orjson==3.13.0 msgspec==0.23.0 ujson==6.1.0
PYTHONPATH="$site" python3 - <<'EOF'
import json

import msgspec
import orjson
import ujson

metrics = {"loss": float("inf"), "grad": float("nan")}
texts = {
    "orjson": orjson.dumps(metrics).decode(),
    "msgspec": msgspec.json.encode(metrics).decode(),
    "ujson": ujson.dumps(metrics),
    "json": json.dumps(metrics),
}
for name, text in texts.items():
    print(f"{name}: {text}")
lost, left = {"loss": None, "grad": None}, {"loss": float("inf")}
assert json.loads(texts["orjson"]) == json.loads(texts["msgspec"]) == lost
for name in ("ujson", "json"):
    assert json.loads(texts[name])["loss"] == left["loss"] and "NaN" in texts[name]
EOF
