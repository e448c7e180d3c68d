#!/bin/sh
# SciPy 1.17.1: of 20 studies two differ between two systems, both for the better. No exact test of two pairs is
# below 0.5. `wilcoxon` says 0.18, for studies that do not differ turn "auto" to the normal approximation;
# with zero_method="pratt" and method="exact" it says 0.012, for ranks that the equal studies took
# are counted as if they could have any sign. Guess: 0.5 by default. Seen: below.
# So: two checkpoints of one run, which differ in few studies, look apart. Leave equal studies out first.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" scipy==1.17.1 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from scipy.stats import wilcoxon

differences = [0.1, 0.2] + [0.0] * 18
p = {
    "default": wilcoxon(differences).pvalue,
    "pratt, exact": wilcoxon(differences, zero_method="pratt", method="exact").pvalue,
    "the two alone": wilcoxon(differences[:2]).pvalue,
}
for name, value in p.items():
    print(f"{name}: p = {value:.4f}")
assert p["the two alone"] == 0.5
assert abs(p["default"] - 0.1797) < 1e-4 and abs(p["pratt, exact"] - 0.01208) < 1e-5
EOF
