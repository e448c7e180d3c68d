#!/bin/sh
# scikit-learn 1.9.1: `compute_sample_weight("balanced", labels)` of a table of labels multiplies the weights of its columns.
# With 14 findings that one film in ten has each, a finding weighs 5 and its absence 0.56, and a film with five findings
# weighs some 50,000 normal ones: 9 to the fifth. One film in a hundred has nearly half of all weight. Guess: below 100.
# Seen: below. Its page says that columns are multiplied. So: a sampler or a loss by these weights looks at a handful of
# films. Weigh each finding's own loss, or take the greatest weight of a film's findings.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'PY'
import numpy as np
from sklearn.utils.class_weight import compute_sample_weight

labels = (np.random.default_rng(0).random((2000, 14)) < 0.1).astype(int)
count = labels.sum(1)
weights = compute_sample_weight("balanced", labels)
means = {k: weights[count == k].mean() for k in range(6)}
for k, mean in means.items():
    films = count == k
    print(f"{k} findings: {films.sum()} films, each {mean:.4f}, together {weights[films].sum() / weights.sum():.1%}")
print(f"a film with five findings weighs {means[5] / means[0]:,.0f} normal ones")
assert means[5] / means[0] > 10_000
first = [compute_sample_weight("balanced", column) for column in labels.T]
assert np.allclose(weights, np.prod(first, axis=0))
assert weights[count >= 5].sum() > 0.4 * weights.sum() and (count >= 5).mean() < 0.03
PY
