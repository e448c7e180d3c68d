#!/bin/sh
# Three reports against two references: torchmetrics 1.9.0's WER, CER, MER, WIL, WIP, BLEU and SacreBLEU and
# sacrebleu 2.6.0's BLEU, chrF and TER score the pairs that there are and drop the rest without a word, one report
# against two references too. torchmetrics' chrF, TER, EED and edit distance refuse. Guess: refused by all. Seen:
# below. So: a list that lost its last reports (a rank that ended early, a file cut short) has a perfect score;
# check the lengths before every call.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torchmetrics==1.9.0 torch==2.13.0 sacrebleu==2.6.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import sacrebleu
from torchmetrics import text

REPORTS = ["no pleural effusion .", "clear lungs .", "tension pneumothorax on the left ."]
PLAIN = REPORTS[:2]
NESTED = [[reference] for reference in PLAIN]
CUT = {"WordErrorRate", "CharErrorRate", "MatchErrorRate", "WordInfoLost", "WordInfoPreserved", "BLEUScore",
       "SacreBLEUScore", "sacrebleu BLEU", "sacrebleu CHRF", "sacrebleu TER"}


def torchmetric(name, references):
    """Return the score of a list of reports by a metric of torchmetrics."""
    return lambda reports: getattr(text, name)()(reports, references).item()


scores = {name: torchmetric(name, PLAIN) for name in (
    "WordErrorRate", "CharErrorRate", "MatchErrorRate", "WordInfoLost", "WordInfoPreserved", "EditDistance")}
scores |= {name: torchmetric(name, NESTED) for name in (
    "BLEUScore", "SacreBLEUScore", "CHRFScore", "TranslationEditRate", "ExtendedEditDistance")}
scores |= {f"sacrebleu {name}": lambda reports, name=name: getattr(sacrebleu, name)().corpus_score(
    reports, [PLAIN]).score for name in ("BLEU", "CHRF", "TER")}
taken = set()
for name, score in scores.items():
    row = []
    for reports in (REPORTS, PLAIN, REPORTS[:1]):
        try:
            row.append(round(score(reports), 3))
        except ValueError:
            row.append("refused")
    print(f"{name}: 3 reports {row[0]}, 2 {row[1]}, 1 {row[2]}")
    if row[0] == row[1] == row[2]:
        taken.add(name)
    else:
        assert row[0] == row[2] == "refused", name
assert taken == CUT, taken ^ CUT
EOF
