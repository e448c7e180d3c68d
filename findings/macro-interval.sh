#!/bin/sh
# confidenceinterval 1.0.5 gives the macro F1 of ten right answers of ten an interval from 0.64 to 1.36, and the
# micro F1 of the same answers one from 1 to 1: the analytic interval of macro averages is symmetric, not
# cut at 1, and has a width without an error. Guess: [1, 1] for both. Seen: below.
# So: the interval that it prints beside a macro F1 says little where the test split is small.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" confidenceinterval==1.0.5 numpy==2.4.6 scikit-learn==1.9.1
PYTHONPATH="$site" python3 - <<'EOF'
import confidenceinterval

answers = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
low, high = {}, {}
for average in ("micro", "macro"):
    value, (low[average], high[average]) = confidenceinterval.f1_score(answers, answers, average=average)
    print(f"{average} F1 {value:.6f}, 95 % from {low[average]:.3f} to {high[average]:.3f}")
    assert abs(value - 1) < 1e-6
assert low["micro"] == high["micro"] == 1
assert abs(low["macro"] - 0.642) < 1e-3 and abs(high["macro"] - 1.358) < 1e-3
EOF
