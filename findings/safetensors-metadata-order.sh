#!/bin/sh
# safetensors 0.8.0: `save` with metadata of six keys writes them in another order at each call, so that the same
# tensors and the same metadata are other bytes: eight saves have more than one digest. With one key, or none, they
# are equal, and what is read back always is. Guess: equal bytes. Seen: below. So: the digest of a file does not
# tell whether weights changed, and an upload of what was saved again is a new file; hash the tensors, or put all
# metadata into one key as JSON.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" safetensors==0.8.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'PY'
import hashlib

import numpy as np
from safetensors.numpy import load, save

weights = {"head.weight": np.arange(6, dtype=np.float32)}
names = ("format", "base", "data", "seed", "step", "epoch")
counts = {}
for taken in (0, 1, len(names)):
    files = [save(weights, metadata={name: name for name in names[:taken]}) for _ in range(8)]
    counts[taken] = len({hashlib.sha256(file).hexdigest() for file in files})
    print(f"{taken} keys: {counts[taken]} digests of 8 saves")
    assert all((load(file)["head.weight"] == weights["head.weight"]).all() for file in files)
assert counts[0] == counts[1] == 1 < counts[len(names)]
PY
