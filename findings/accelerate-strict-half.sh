#!/bin/sh
# accelerate 1.15.0: `load_checkpoint_in_model(model, file, strict=True)` of a safetensors file that lacks the
# head says nothing: the head stays as it was drawn. strict refuses a name that the file has too many, not one that it
# lacks; its docstring says "that the keys in the checkpoint state_dict match the keys of the model". A .bin is loaded
# alike. Guess: without strict a warning. Seen: below, none with it either. So: a report model whose head was left out on
# the way writes noise, or is taken for untrained. Compare the names yourself.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" accelerate==1.15.0 safetensors==0.8.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W error - "$site" <<'PY'
import sys

import torch
from accelerate import load_checkpoint_in_model
from safetensors.torch import save_file

whole = {"0.weight": torch.ones(4, 4), "0.bias": torch.ones(4), "1.weight": torch.ones(2, 4), "1.bias": torch.ones(2)}
FILES = {"all": whole, "no head": {name: value for name, value in whole.items() if name[0] == "0"},
         "one too many": {**whole, "2.bias": torch.ones(2)}}
for suffix in ("safetensors", "bin"):
    for name, weights in FILES.items():
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
        path = f"{sys.argv[1]}/{name}.{suffix}"
        torch.save(weights, path) if suffix == "bin" else save_file(weights, path, metadata={"format": "pt"})
        try:
            load_checkpoint_in_model(model, path, strict=True)
            refused = False
        except RuntimeError:
            refused = True
        head = "set" if (model[1].weight == 1).all() else "as drawn"
        print(f"{name}, .{suffix}, strict: {'refused' if refused else 'loaded'}, head {head}")
        assert refused == (name == "one too many")
        assert name != "no head" or (model[0].weight == 1).all() and not (model[1].weight == 1).all()
PY
