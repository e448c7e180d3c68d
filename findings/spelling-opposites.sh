#!/bin/sh
# Spelling correction of reports: textblob 0.20.1 makes "unremarkable" remarkable and "expiratory" respiratory, it
# and autocorrect 2.6.1 make "unobstructed" obstructed, autocorrect makes "pleural effusion" plural fusion.
# symspellpy 6.10.1's `lookup_compound` makes "5.5 cm" into words, "a a pm". pyspellchecker 0.9.1 has None for
# pneumothoraces. Guess (of pyspellchecker, symspellpy, autocorrect): no word becomes its opposite; textblob was
# not asked about. So: a set of reports that was cleaned this way says the opposite in places. Correct by the
# reports' own vocabulary.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" textblob==0.20.1 nltk==3.10.4 autocorrect==2.6.1 \
  symspellpy==6.10.1 pyspellchecker==0.9.1
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import importlib.resources

from autocorrect import Speller
from spellchecker import SpellChecker
from symspellpy import SymSpell
from textblob import TextBlob

symspell = SymSpell(2, 7)
symspell.load_dictionary(str(importlib.resources.files("symspellpy") / "frequency_dictionary_en_82_765.txt"), 0, 1)
outcome = {
    "textblob": [str(TextBlob(word).correct()) for word in ("unremarkable", "unobstructed", "expiratory")],
    "autocorrect": [Speller()(text) for text in ("unobstructed", "pleural effusion", "expiratory")],
    "symspellpy": symspell.lookup_compound("small pneumothorax of 5.5 cm", 2)[0].term,
    "pyspellchecker": [SpellChecker().correction(word) for word in ("pneumothoraces",)],
}
for name, value in outcome.items():
    print(name, value)
assert outcome["textblob"] == ["remarkable", "obstructed", "respiratory"]
assert outcome["autocorrect"] == ["obstructed", "plural fusion", "respiratory"]
assert outcome["symspellpy"] == "small pneumothorax of a a pm"
assert outcome["pyspellchecker"] == [None]
EOF
