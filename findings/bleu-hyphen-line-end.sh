#!/bin/sh
# sacrebleu 2.6.0: BLEU's default tokenizer, 13a, joins what a hyphen at a line's end parts, and takes the hyphen out: "left-"
# and "sided" on two lines are "leftsided", identical to no report that has the word on one line. With "T1-" and "2" it is T12,
# another vertebra. A line end without a hyphen is a blank. chrF leaves the hyphen. Guess: "left- sided". Seen: below. So:
# references that are wrapped at 80 columns lose points that their answers cannot have. Join lines first, hyphen kept.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" sacrebleu==2.6.0
PYTHONPATH="$site" python3 - <<'PY'
import sacrebleu

wrapped = "There is a left-\nsided effusion and no edema."
SCORES = {}
for between in ("-", "- ", ""):
    answer = f"There is a left{between}sided effusion and no edema."
    bleu, chrf = (score(answer, [wrapped]).score for score in (sacrebleu.sentence_bleu, sacrebleu.sentence_chrf))
    SCORES[between] = bleu, chrf
    print(f"{answer!r} against {wrapped!r}: BLEU {bleu:.0f}, chrF {chrf:.0f}")
assert SCORES["-"][0] < 70 and SCORES["- "][0] < 70 and SCORES[""][0] > 99.9
assert SCORES["-"][1] > 99.9 > SCORES[""][1]
vertebra = sacrebleu.sentence_bleu("Wedging of the body of T12 is old.", ["Wedging of the body of T1-\n2 is old."]).score
print(f"'T12' against 'T1-' and '2' on two lines: BLEU {vertebra:.0f}")
assert vertebra > 99.9
lines = sacrebleu.sentence_bleu("No effusion. Heart is normal.", ["No effusion.\nHeart is normal."]).score
print(f"a line end without a hyphen: BLEU {lines:.0f}")
assert lines > 99.9
PY
