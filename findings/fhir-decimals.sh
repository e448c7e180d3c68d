#!/bin/sh
# fhir.resources 8.3.0 drops the precision of a decimal: a measurement of 5.50 is written as 5.5, and a value
# of 19 digits loses its last ones. FHIR (datatypes, decimal) says that 0.010 is not 0.01 and that
# implementations keep the precision. Guess: 5.50 comes out as 5.50, for the field is a Decimal. Seen: below.
# So: "5.50 mm" of a structured report reads "5.5 mm" after a pass through this package.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" fhir.resources==8.3.0 fhir-core==1.1.12
PYTHONPATH="$site" python3 - <<'EOF'
import json

from fhir.resources.observation import Observation

PATTERN = '{"resourceType":"Observation","status":"final","code":{"text":"nodule"},"valueQuantity":{"value":%s}}'
outcome = {}
for value in ("5.50", "0.010", "12345678901234567.89"):
    read = Observation.model_validate_json(PATTERN % value)
    text = read.model_dump_json()
    written = json.loads(text, parse_float=str, parse_int=str)["valueQuantity"]["value"]
    outcome[value] = repr(read.valueQuantity.value), written
    print(value, "is held as", outcome[value][0], "and written as", outcome[value][1])
assert outcome["5.50"] == ("Decimal('5.5')", "5.5")
assert outcome["0.010"] == ("Decimal('0.01')", "0.01")
assert outcome["12345678901234567.89"][1] == "12345678901234568"
EOF
