#!/bin/sh
# statsmodels 0.15.0: McNemar's test with the continuity correction (its default where exact=False) takes 1 from a
# difference of 0. Two systems that agree on every study get a statistic of infinity and p = 0, and two that
# are each right in five studies where the other is wrong p = 0.75. The exact test says 1 to both.
# Guess: 1 and 1. Seen: 0 and 0.75. So: a checkpoint held against itself is "significantly different".
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" statsmodels==0.15.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
from statsmodels.stats.contingency_tables import mcnemar

values = {}
for discordant in (0, 5):
    table = [[50, discordant], [discordant, 30]]
    exact, corrected = mcnemar(table), mcnemar(table, exact=False)
    values[discordant] = exact.pvalue, corrected.pvalue
    print(f"{discordant} against {discordant}: exact p {exact.pvalue}, corrected p {corrected.pvalue:.4f}, "
          f"statistic {corrected.statistic}")
assert values[0] == (1, 0)
assert values[5][0] == 1 and abs(values[5][1] - 0.7518) < 1e-4
EOF
