#!/bin/sh
# langdetect 1.0.9, langid 1.1.6 and py3langid 0.4.0: a filter for English drops normal reports, not the long
# ones with findings. "No effusion." is Welsh, Spanish and Venetian, "Unremarkable." Danish by two of three, and
# langid calls "Heart size normal. Lungs clear. No pleural effusion." French. Guess: English by all. Seen: below.
# So: a corpus cleaned by language has fewer normal studies than its source. Ask of whole data sets, not of rows.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" langdetect==1.0.9 langid==1.1.6 py3langid==0.4.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import langdetect
import langid
import py3langid

langdetect.DetectorFactory.seed = 0
normal = ("No effusion.", "Unremarkable.", "Heart size normal. Lungs clear. No pleural effusion.")
long = "There is a moderate left pleural effusion with adjacent atelectasis, unchanged since the prior."
rows = {}
for text in (*normal, long):
    rows[text] = langdetect.detect(text), langid.classify(text)[0], py3langid.classify(text)[0]
    print(*rows[text], text)
assert "en" not in rows["No effusion."]
assert rows["Unremarkable."] == ("da", "da", "en")
assert rows[normal[2]] == ("en", "fr", "en")
assert rows[long] == ("en", "en", "en")
EOF
