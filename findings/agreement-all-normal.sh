#!/bin/sh
# Two readers who call all of 20 studies normal: scikit-learn 1.9.1's kappa and krippendorff 0.9.0's alpha are NaN,
# nltk 3.10.4's kappa and alpha of the same ratings are 1. Guess: NaN by all. Seen: below.
# A mean of kappas over findings drops a finding of the one package or is NaN, and counts it as perfect by the
# other. So: name the package beside an average agreement, and say what a finding without a positive counts.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" scikit-learn==1.9.1 krippendorff==0.9.0 nltk==3.10.4 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import math

import krippendorff
from nltk.metrics.agreement import AnnotationTask
from sklearn.metrics import cohen_kappa_score

normal = [0] * 20
task = AnnotationTask([(reader, study, 0) for reader in "ab" for study in range(20)])
values = {
    "scikit-learn, kappa": cohen_kappa_score(normal, normal, labels=[0, 1]),
    "krippendorff, alpha": krippendorff.alpha([normal, normal], value_domain=[0, 1], level_of_measurement="nominal"),
    "nltk, kappa": task.kappa(),
    "nltk, alpha": task.alpha(),
}
for name, value in values.items():
    print(name, value)
assert math.isnan(values["scikit-learn, kappa"]) and math.isnan(values["krippendorff, alpha"])
assert values["nltk, kappa"] == values["nltk, alpha"] == 1
EOF
