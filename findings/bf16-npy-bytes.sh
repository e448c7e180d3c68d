#!/bin/sh
# NumPy 2.4.6 with ml_dtypes 0.6.0: an array of bfloat16 saved by `np.save` comes back as two raw bytes a value, |V2, and
# float8 as |V1: nothing in the file says which type it was, saving says nothing, and `astype(float32)` of what was loaded is
# refused. Guess: bfloat16, or refused at saving. Seen: below. `view` brings it back, for who knows the type:
# viewed as float16, the ones of a film's features are 1.875, and nobody objects.
# So: features kept by np.save or np.savez in bf16 need the name of their type beside them; safetensors has it.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" numpy==2.4.6 ml_dtypes==0.6.0
PYTHONPATH="$site" python3 - <<'EOF'
import io

import ml_dtypes
import numpy as np


def again(array):
    file = io.BytesIO()
    np.save(file, array)
    file.seek(0)
    return np.load(file)


features = np.ones(4, ml_dtypes.bfloat16)
back = again(features)
print("bfloat16 ->", back.dtype.str, back[0])
print("float8_e4m3fn ->", again(np.ones(4, ml_dtypes.float8_e4m3fn)).dtype.str)
print("viewed as float16:", back.view(np.float16)[0])
assert back.dtype.str == "|V2" and again(np.ones(4, ml_dtypes.float8_e4m3fn)).dtype.str == "|V1"
assert (back.view(ml_dtypes.bfloat16) == features).all() and back.view(np.float16)[0] == 1.875
try:
    back.astype(np.float32)
except (TypeError, ValueError) as error:
    print(f"astype: {type(error).__name__}: {error}")
else:
    raise SystemExit("astype reads the bytes now")
EOF
