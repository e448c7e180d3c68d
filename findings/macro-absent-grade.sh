#!/bin/sh
# torchmetrics 1.9.0, scikit-learn 1.9.1: right answers about grades 0 to 3 in a set without a grade 3 have a macro F1 of 1 by the
# first, which leaves the absent grade out, and of 0.75 by the second where all four labels are named (with a warning), 1 where they
# are not. One wrong "3" brings it back: the first falls from 1 to below. Guess: the same by both. Seen: below.
# So: macro F1 of two test sets, or of two libraries, is a mean over other numbers of grades. Name the labels and the division.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torchmetrics==1.9.0 torch==2.13.0 scikit-learn==1.9.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import warnings

import torch
from sklearn.metrics import f1_score
from torchmetrics.functional.classification import multiclass_f1_score

warnings.simplefilter("ignore")
truth = torch.arange(60) % 3
one_wrong = truth.clone()
one_wrong[0] = 3


def macro(answers):
    return {
        "torchmetrics": round(float(multiclass_f1_score(answers, truth, 4, average="macro")), 3),
        "scikit-learn, four labels": round(f1_score(truth, answers, labels=[0, 1, 2, 3], average="macro"), 3),
        "scikit-learn": round(f1_score(truth, answers, average="macro"), 3),
    }


right, wrong = macro(truth), macro(one_wrong)
print("all right:", right)
print("one of 60 is called a 3:", wrong)
assert right == {"torchmetrics": 1.0, "scikit-learn, four labels": 0.75, "scikit-learn": 1.0}
assert all(0.74 < value < 0.75 for value in wrong.values())
EOF
