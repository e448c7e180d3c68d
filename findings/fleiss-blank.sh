#!/bin/sh
# statsmodels 0.15.0: `aggregate_raters`, which makes the counts that `fleiss_kappa` takes, counts NaN as a category. Three
# readers whose calls are chance have a kappa near 0; where 40 % of the studies were read by none of them, and are blank
# in all columns, they agree on "blank" and kappa is near 0.5. Guess: left out, or refused. Seen: below. So: the more studies
# nobody has read, the better the readers agree. Drop rows with blanks, or take Krippendorff's alpha, which leaves them out.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" statsmodels==0.15.0 pandas==3.1.1 scipy==1.17.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'PY'
import numpy as np
from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa

generator = np.random.default_rng(0)
calls = (generator.random((200, 3)) < 0.4).astype(float)
unread = generator.random(200) < 0.4
blank = np.where(unread[:, None], np.nan, calls)
kappas = {}
for name, ratings in (("all read", calls), ("40 % blank", blank), ("blank rows dropped", calls[~unread])):
    counts, categories = aggregate_raters(ratings)
    kappas[name] = fleiss_kappa(counts)
    print(f"{name}: categories {categories.tolist()}, kappa {kappas[name]:.2f}")
assert abs(kappas["all read"]) < 0.1 and abs(kappas["blank rows dropped"]) < 0.1 and kappas["40 % blank"] > 0.4
PY
