#!/bin/sh
# imbalanced-learn 0.14.2 takes label rows of zeros and ones for classes as long as no row has two ones, by argmax: a
# film without a finding has its greatest value in column 0. Of 20 films ten are normal; behind `RandomOverSampler` none
# is, and each normal film carries finding 0. A row with two ones is refused. Guess: normal films stay normal, or
# the whole is refused. Seen: below. So: in a set that has one finding a film at most the first finding of the list
# swallows the normal studies; give "normal" a column of its own, or draw studies by weights.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" imbalanced-learn==0.14.2 scikit-learn==1.9.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'PY'
import numpy as np
from imblearn.over_sampling import RandomOverSampler
from imblearn.under_sampling import RandomUnderSampler

labels = np.zeros((20, 3), int)
labels[:3, 0] = labels[3:8, 1] = labels[8:10, 2] = 1
films = np.arange(20)[:, None]
for sampler in (RandomOverSampler(random_state=0), RandomUnderSampler(random_state=0)):
    drawn, drawn_labels = sampler.fit_resample(films, labels)
    normal = drawn_labels[drawn[:, 0] >= 10]
    print(f"{type(sampler).__name__}: {len(drawn)} films, {(drawn_labels.sum(1) == 0).sum()} without a finding; "
          f"what the {len(normal)} normal ones have: {np.unique(normal, axis=0).tolist()}")
    assert (drawn_labels.sum(1) == 1).all() and (normal == [1, 0, 0]).all()
    assert (drawn_labels[drawn[:, 0] < 10] == labels[drawn[drawn[:, 0] < 10, 0]]).all()
labels[0, 1] = 1
try:
    RandomOverSampler().fit_resample(films, labels)
except ValueError as refusal:
    print("two findings on one film:", str(refusal).split(".")[0])
else:
    raise SystemExit("two findings on one film: taken")
PY
