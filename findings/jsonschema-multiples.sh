#!/bin/sh
# jsonschema 4.26.0 divides in floating point to see whether a number is a multiple: of the 101 tenths from 0 to 10 it
# refuses 33 (0.3, 0.6, 0.7 ...) under `"multipleOf": 0.1`. fastjsonschema 2.22.3 and jsonschema-rs 0.61.2 accept
# all, and refuse 0.35. Guess: all accept the tenths. Seen: below. So: a judge's valid score of 0.3 counts as a
# broken answer, or is asked for again, by one validator; score in whole numbers.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" jsonschema==4.26.0 fastjsonschema==2.22.3 jsonschema-rs==0.61.2
PYTHONPATH="$site" python3 - <<'EOF'
import fastjsonschema
import jsonschema
import jsonschema_rs

CHECKS = {"jsonschema": lambda schema, value: jsonschema.validate(value, schema),
          "fastjsonschema": lambda schema, value: fastjsonschema.compile(schema)(value),
          "jsonschema-rs": jsonschema_rs.validate}
REFUSALS = jsonschema.ValidationError, fastjsonschema.JsonSchemaValueException, jsonschema_rs.ValidationError


def accepts(name, schema, value):
    """Return whether a validator takes the value."""
    try:
        CHECKS[name](schema, value)
    except REFUSALS:
        return False
    return True


TENTHS = [k / 10 for k in range(101)]
for name in CHECKS:
    refused = [value for value in TENTHS if not accepts(name, {"multipleOf": 0.1}, value)]
    print(f"{name}: refuses {len(refused)} of {len(TENTHS)} tenths {refused[:4]}")
    assert not accepts(name, {"multipleOf": 0.1}, 0.35)
    assert len(refused) == (33 if name == "jsonschema" else 0)
EOF
