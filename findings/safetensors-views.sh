#!/bin/sh
# safetensors 0.8.0, `safetensors.numpy`: an array that is not contiguous (transposed, every second column, Fortran
# order) is saved as its memory lies, under the shape that it shows: other numbers come back, in silence. Its page
# asks for contiguous arrays; `safetensors.torch` checks and refuses, this one does not. Guess: they come back as
# they were. Seen: below. So: weights that were transposed for another framework, or a batch of films put from HWC
# to CHW, are scrambled on disk. Save `np.ascontiguousarray` of each.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" safetensors==0.8.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import numpy as np
from safetensors.numpy import load, save

array = np.arange(6, dtype=np.float32).reshape(2, 3)
views = {"transposed": array.T, "Fortran order": np.asfortranarray(array),
         "every second column": array[:, ::2]}
for name, view in views.items():
    back = load(save({"a": view}))["a"]
    print(f"{name}: {view.tolist()} comes back as {back.tolist()}")
    assert back.shape == view.shape and not np.array_equal(back, view)
    assert np.array_equal(load(save({"a": np.ascontiguousarray(view)}))["a"], view)
assert np.array_equal(load(save({"a": array.astype(">f4")}))["a"], array)  # a big-endian one does
EOF
