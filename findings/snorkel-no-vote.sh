#!/bin/sh
# snorkel 0.10.0: `LabelModel.predict` of a report on which every labelling function abstained gives the commoner class, at the
# odds of `class_balance`; `tie_break_policy="abstain"`, its default, abstains at ties alone, and 0.8 against 0.2 is none.
# `MajorityLabelVoter` abstains. Guess: it abstains. Seen: below. So: where findings are rare, a report that no function
# understood is a normal one in the labels, with nothing to tell it from those that were voted normal. Drop rows of -1
# first, by `filter_unlabeled_dataframe`.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" snorkel==0.10.0 torch==2.13.0
PYTHONPATH="$site" python3 -W ignore - <<'PY'
import numpy as np
from snorkel.labeling.model import LabelModel, MajorityLabelVoter

generator = np.random.default_rng(0)
positive = generator.random(1000) < 0.2
votes = np.full((1000, 4), -1)
for column in range(4):
    votes[:, column] = np.where(generator.random(1000) < 0.5, positive ^ (generator.random(1000) < 0.15), -1)
silent = (votes == -1).all(1)
for balance in ([0.8, 0.2], [0.5, 0.5]):
    model = LabelModel(cardinality=2, verbose=False)
    model.fit(votes, n_epochs=200, seed=1, progress_bar=False, class_balance=balance)
    labels, odds = model.predict(votes)[silent], model.predict_proba(votes)[silent]
    print(f"class balance {balance}: the {silent.sum()} reports without a vote are {set(labels.tolist())}, at {odds[0].tolist()}")
    assert set(labels.tolist()) == ({0} if balance[0] > 0.5 else {-1}) and np.allclose(odds, balance)
print(f"majority: {set(MajorityLabelVoter().predict(votes)[silent].tolist())}")
assert set(MajorityLabelVoter().predict(votes)[silent].tolist()) == {-1}
PY
