#!/bin/sh
# fhirpathpy 2.2.4: the standard's own path `Observation.value` of an observation with a valueQuantity is empty, and
# `value.exists()` false, unless the call is handed the model of a FHIR release, which is an optional argument;
# `Observation.valueQuantity`, which is no path of the standard, is answered. Guess: the value. Seen: below.
# So: a rule "a nodule was measured" or "the report has a date" is false of every study, which is an answer and no
# error. Hand over models["r4"].
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" fhirpathpy==2.2.4
PYTHONPATH="$site" python3 - <<'EOF'
from fhirpathpy import evaluate
from fhirpathpy.models import models

nodule = {
    "resourceType": "Observation",
    "status": "final",
    "effectiveDateTime": "2026-01-02",
    "valueQuantity": {"value": 12, "unit": "mm"},
}
paths = ("Observation.value.value", "Observation.value.exists()", "Observation.effective.exists()")
plain = [evaluate(nodule, path) for path in paths]
by_release = [evaluate(nodule, path, {}, models["r4"]) for path in paths]
print("without a model:", plain, "\nwith that of R4:", by_release)
print("a path of the file's own keys:", evaluate(nodule, "Observation.valueQuantity.value"))
assert plain == [[], [False], [False]]
assert by_release == [[12], [True], [True]]
EOF
