#!/bin/sh
# dateparser 1.5.0, `search_dates`: "Opacity may represent atelectasis" holds the month of May, "now" and "a second" are
# times, "Sat on the diaphragm" a Saturday and "ribs 5 and 6" a date. datefinder 1.0.0 has none of them and both
# have "2101-03-04". Guess: no date. Seen: below. So: who takes dates out of reports by it takes the doubt out of
# them: "Opacity represent atelectasis". Search for dates that hold a number of four digits.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" dateparser==1.5.0 datefinder==1.0.0
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import datefinder
from dateparser.search import search_dates

TEXTS = {"Opacity may represent atelectasis.": ["may"], "Nodule of 5 mm, now larger.": ["now"],
         "A second nodule is seen.": ["A second"], "Sat on the diaphragm.": ["Sat on the"],
         "Fractures of ribs 5 and 6.": ["5 and 6"], "No change since the prior.": []}
for text, dates in TEXTS.items():
    one = [words for words, _ in search_dates(text, languages=["en"]) or []]
    other = [words for _, words in datefinder.find_dates(text, source=True)]
    print(f"{text} dateparser: {one}; datefinder: {other}")
    assert one == dates and not other
dated = "Compared with 2101-03-04."
assert search_dates(dated, languages=["en"]) and list(datefinder.find_dates(dated))
EOF
