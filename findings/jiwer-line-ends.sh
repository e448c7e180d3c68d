#!/bin/sh
# jiwer 4.0.0 parts words at blanks alone. One line end, a tab or a no-break blank between two words makes one word of
# them: "No effusion.\nHeart normal." against the same sentences on one line has a word error rate of 0.5. Two line ends
# are a blank, for it replaces two white signs by one, and the rate is 0. Guess: 0 for all, as torchmetrics and evaluate
# have it, which use `str.split`. Seen: below. So: a word error rate of dictation or of reports counts where lines are
# wrapped. Join `text.split()` by blanks before both sides.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" jiwer==4.0.0
PYTHONPATH="$site" python3 - <<'PY'
import jiwer

reference = "No effusion. Heart normal."
RATES = {" ": 0, "\n": 0.5, "\t": 0.5, "\u00a0": 0.5, "\n\n": 0, " \n": 0}
for between, wanted in RATES.items():
    answer = f"No effusion.{between}Heart normal."
    rate = jiwer.wer(reference, answer)
    print(f"{answer!r}: {rate}, its words {jiwer.process_words(reference, answer).hypotheses[0]}")
    assert rate == wanted and jiwer.wer(reference, " ".join(answer.split())) == 0
PY
