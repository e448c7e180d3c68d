#!/bin/sh
# datasets 5.2.0, `with_format("torch")`: a column of integer labels of which some are blank is int64 in a batch where
# none is and float32 in one where one is, with NaN in its place; a list of labels likewise. Guess: one dtype, or
# refused. Seen: below. So: the dtype of CheXpert's labels depends on which studies meet in a batch; `labels == 1`
# works in both, an index or a cross-entropy in the first alone, and ids above 2**24 that share a column with a
# blank lose their last digits in the second.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m venv "$site/env"
"$site/env/bin/pip" install -qq datasets==5.2.0 torch==2.13.0 numpy==2.4.6
HF_HOME="$site/cache" HF_HUB_OFFLINE=1 "$site/env/bin/python" -W ignore - <<'EOF'
import torch
from datasets import Dataset

study = 50414266
table = {"edema": [1, 0, None, 1], "three": [[1, 0, 1], [0, None, 1], [0, 0, 0], [1, 1, 1]]}
data = Dataset.from_dict(table | {"study": [study, study + 1, None, study + 3]}).with_format("torch")
whole, blank = data[:1], data[:4]
for name in ("edema", "three", "study"):
    print(f"{name}: {whole[name].dtype} in a batch without a blank, {blank[name].dtype} with one")
    assert whole[name].dtype == torch.int64 and blank[name].dtype == torch.float32
print(f"study {study + 1} is", int(blank["study"][1]))
assert int(blank["study"][1]) == study + 2
EOF
