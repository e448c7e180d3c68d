#!/bin/sh
# presidio-analyzer 2.2.366: vertebral levels are driver's licences. Its English recogniser by pattern gives "T12", "L1" and "C3" of
# a report 0.3, above the default threshold of 0, a label "C3-C4" counts twice, and exposure beside a matrix, "mAs 512 x", is a
# British number plate. Guess: nobody's data. Seen: below.
# So: an anonymised report says "fracture of <US_DRIVER_LICENSE>". Set score_threshold to 0.4, or leave out the recognisers of
# licences and plates.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" presidio-analyzer==2.2.366
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from presidio_analyzer import RecognizerRegistry
from presidio_analyzer.predefined_recognizers import UsLicenseRecognizer

TEXTS = ("Wedge fracture of T12, intact L1.", "Fusion C3-C4.", "Nodule of 12 mm, unchanged.")
licence = UsLicenseRecognizer()
read = {}
for text in TEXTS:
    results = licence.analyze(text, licence.supported_entities, None)
    read[text] = [(text[r.start : r.end], r.score) for r in results]
    print(text, read[text])
registry = RecognizerRegistry()
registry.load_predefined_recognizers(languages=["en"])
names = {type(each).__name__ for each in registry.recognizers}
print("among the default recognisers:", "UsLicenseRecognizer" in names)
assert "UsLicenseRecognizer" in names
assert [sorted(read[text]) for text in TEXTS] == [[("L1", 0.3), ("T12", 0.3)], [("C3", 0.3), ("C4", 0.3)], []]
EOF
