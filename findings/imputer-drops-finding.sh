#!/bin/sh
# scikit-learn 1.9.1: fourteen columns of findings with blanks, one of which nobody has labelled, leave KNNImputer with thirteen and no
# word, and the findings behind it stand one to the left. SimpleImputer and IterativeImputer do so with a warning.
# Guess: fourteen columns. Seen: below.
# So: `labels[:, 8]` is another finding in a split where one is never labelled (a small site, a fold by patients).
# `keep_empty_features=True` keeps the column, as zeros, which are no labels either: leave it out by name.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" scikit-learn==1.9.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import warnings

import numpy as np
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

labels = np.zeros((40, 14))
labels[:, 8] = 1
labels[0] = np.nan
labels[:, 6] = np.nan
for imputer in (KNNImputer(), SimpleImputer(strategy="most_frequent"), IterativeImputer(max_iter=1)):
    with warnings.catch_warnings(record=True) as words:
        warnings.simplefilter("always")
        filled = imputer.fit_transform(labels)
    where = np.flatnonzero(filled.mean(0) > 0.5).tolist()
    name = type(imputer).__name__
    print(f"{name}: {filled.shape[1]} columns, {len(words)} warnings, the finding of column 8 is in {where}")
    assert filled.shape == (40, 13) and where == [7]
    assert bool(words) == (name != "KNNImputer")
whole = KNNImputer(keep_empty_features=True).fit_transform(labels)
assert whole.shape == (40, 14) and not whole[:, 6].any()
EOF
