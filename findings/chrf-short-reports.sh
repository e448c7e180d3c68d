#!/bin/sh
# chrF by nltk 3.10.4 divides by all six orders of n-grams, by sacrebleu 2.6.0 by those that the text has: an identical
# report of five letters scores 83 by the one and 100 by the other, one of two letters 33 and 100. On longer
# reports the two are within a point. Guess: they differ on unlike texts by more than that. Seen: only on short
# ones, identical ones too. So: a mean over short impressions has a ceiling below 100 by nltk.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" nltk==3.10.4 sacrebleu==2.6.0
PYTHONPATH="$site" python3 - <<'EOF'
import sacrebleu
from nltk.translate.chrf_score import sentence_chrf

values = {}
for text, reference in (("No", "No"), ("Clear", "Clear"), ("No edema", "No edema"), ("no effusion", "no edema")):
    values[text] = 100 * sentence_chrf(reference, text, beta=2), sacrebleu.sentence_chrf(text, [reference]).score
    print(f"{text!r} against {reference!r}: nltk {values[text][0]:.1f}, sacrebleu {values[text][1]:.1f}")
assert [round(value) for value in values["No"]] == [33, 100]
assert [round(value) for value in values["Clear"]] == [83, 100]
assert [round(value) for value in values["No edema"]] == [100, 100]
assert abs(values["no effusion"][0] - values["no effusion"][1]) < 1
EOF
