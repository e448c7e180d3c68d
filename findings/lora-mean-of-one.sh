#!/bin/sh
# peft 0.21.2: the "linear" mean of an adapter with itself, weights 0.5 and 0.5, is twice the adapter. The square root
# of each weight goes onto A and onto B, and the products across add what is not asked for. For two unlike
# adapters the error is as large as the mean itself. "cat" is exact. Guess: no mean for unlike adapters; that
# an adapter's mean with itself is none was not thought of. Seen: below. So: two checkpoints of one run are
# averaged with combination_type="cat".
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" peft==0.21.2 transformers==5.23.0 accelerate==1.15.0 torch==2.13.0
HF_HUB_OFFLINE=1 PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import torch
from peft import LoraConfig, get_peft_model

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 32))
config = LoraConfig(r=4, lora_alpha=4, target_modules=["0"], init_lora_weights=False)
model = get_peft_model(model, config, "one")
model.add_adapter("other", config)
layer = model.base_model.model[0]
errors = {}
for names in (["one", "one"], ["one", "other"]):
    mean = sum(layer.get_delta_weight(name) for name in names) / 2
    for kind in ("linear", "cat"):
        made = "_".join([*names, kind])
        model.add_weighted_adapter(names, [0.5, 0.5], made, combination_type=kind)
        errors[made] = ((layer.get_delta_weight(made) - mean).norm() / mean.norm()).item()
        print(f"mean of {names} by {kind}: relative error {errors[made]:.2g}")
assert abs(errors["one_one_linear"] - 1) < 1e-5
assert errors["one_other_linear"] > 0.5
assert errors["one_one_cat"] < 1e-5 and errors["one_other_cat"] < 1e-5
EOF
