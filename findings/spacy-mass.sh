#!/bin/sh
# spaCy 3.8.18, English: "Impression: Mass. No effusion." is one sentence, for "Mass." is Massachusetts, with that as its norm.
# "mass." and "MASS." end a sentence; "Ill.", "Miss.", "Ore." and "Wash." do not. Guess: two sentences, and the word Mass.
# Seen: below.
# So: a list of findings that begins with a capital, one word a line or after a colon, hides its masses from a matcher for
# "mass", and the next denial is in their sentence. Take the States out of the tokenizer's rules, as below.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" spacy==3.8.18
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import spacy
from spacy.matcher import PhraseMatcher

nlp = spacy.blank("en")
nlp.add_pipe("sentencizer")


def seen(text):
    doc = nlp(text)
    matcher = PhraseMatcher(nlp.vocab, attr="LOWER")
    matcher.add("mass", [nlp.make_doc("mass")])
    norms = [token.norm_ for token in doc if token.lower_.startswith("mass")]
    return len(list(doc.sents)), len(matcher(doc)), norms


for text in ("Impression: Mass. No effusion.", "Impression: mass. No effusion.", "IMPRESSION: MASS. NO EFFUSION."):
    sentences, matches, norms = seen(text)
    print(f"{text!r}: {sentences} sentences, {matches} matches of mass, {norms}")
    assert (sentences, matches, norms) == ((1, 0, ["Massachusetts"]) if "Mass" in text else (2, 1, ["mass"]))
nlp.tokenizer.rules = {word: pieces for word, pieces in nlp.tokenizer.rules.items() if word != "Mass."}
assert seen("Impression: Mass. No effusion.") == (2, 1, ["mass"])
EOF
