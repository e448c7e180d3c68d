#!/bin/sh
# negspacy 1.1.0 denies what a radiologist could not exclude: "cannot" and "not" deny what follows them, and of
# "cannot exclude" its English terms know nothing. "Neither effusion nor edema" is not denied, for
# "neither" is no term. Guess: the first is not denied, the second is. Seen: the other way round.
# So: labels made by it count the doubt of a report as a normal film, and one of its normal films as two findings.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" negspacy==1.1.0 spacy==3.8.18
PYTHONPATH="$site" python3 - <<'EOF'
import spacy
from negspacy.negation import Negex  # noqa: F401 (names the pipe "negex")

nlp = spacy.blank("en")
nlp.add_pipe("sentencizer")
words = ("effusion", "edema", "pneumonia")
nlp.add_pipe("entity_ruler").add_patterns([{"label": "FINDING", "pattern": [{"LOWER": w}]} for w in words])
nlp.add_pipe("negex", config={"ent_types": ["FINDING"]})
outcome = {}
for text in ("No pneumonia.", "Cannot exclude pneumonia.", "Not excluded: pneumonia.", "Neither effusion nor edema."):
    outcome[text] = [entity._.negex for entity in nlp(text).ents]
    print(text, "denied:", outcome[text])
assert outcome == {
    "No pneumonia.": [True],
    "Cannot exclude pneumonia.": [True],
    "Not excluded: pneumonia.": [True],
    "Neither effusion nor edema.": [False, False],
}
EOF
