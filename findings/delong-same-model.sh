#!/bin/sh
# MLstatkit 0.1.91: DeLong's test of a model against itself gives z = 0 and p = 0. The difference has no variance,
# the function falls back to a bootstrap without a word, and the share of resamples beyond 0 is 0 on both sides. z
# = 0 means p = 1 in the normal distribution that the other path uses. Guess: p = 1. Seen: below. So: two
# checkpoints with the same scores for a finding are "significantly different"; read z beside p.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" MLstatkit==0.1.91 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import numpy as np
from MLstatkit import Delong_test

rng = np.random.default_rng(0)
truth = rng.integers(0, 2, 60)
scores = rng.random(60) + truth / 2
p = {}
for name, other in (("itself", scores), ("itself, scaled", 2 * scores), ("chance", rng.random(60))):
    z, p[name], *_, info = Delong_test(truth, scores, other, random_state=0)
    print(f"against {name}: z = {z:.3f}, p = {p[name]:.4f}, by {info['method']}")
assert p["itself"] == p["itself, scaled"] == 0
assert 0 < p["chance"] < 1
EOF
