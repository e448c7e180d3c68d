#!/bin/sh
# Crowd-Kit 1.4.2, `MajorityVote`: every tie, in all studies, goes to the label that stands first in the table, whoever gave
# it. Two readers who part on ten studies, each calling half of them positive, are ten positive studies or none,
# by what the table's first row says. Guess: by chance, or no label. Seen: below. So: with two or four readers
# prevalence, and every F1 against such references, hangs on the order of rows. Look for ties yourself.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" crowd-kit==1.4.2 pandas==3.1.1 numpy==2.4.6 scikit-learn==1.9.1
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import pandas as pd
from crowdkit.aggregation import MajorityVote

rows = [(study, reader, ("absent", "present")[(study + reader) % 2]) for study in range(10) for reader in (0, 1)]
table = pd.DataFrame(rows, columns=["task", "worker", "label"])
for name, ordered in {"as it stands": table, "backwards": table[::-1],
                      "present first": table.sort_values("label", ascending=False)}.items():
    votes = MajorityVote().fit_predict(ordered).value_counts().to_dict()
    print(f"{name}, first row {ordered.label.iloc[0]}: {votes}")
    assert votes == {ordered.label.iloc[0]: 10}
EOF
