#!/bin/sh
# torchmetrics 1.9.0, `BinaryCalibrationError`: a probability of exactly 1 lies in a bin of its own beyond the last. Three
# false alarms at 1 and two right calls at 0.95 are one bin of 15 by the definition (ECE 0.58) and two here (0.62);
# at 0.9999 it is 0.58 again. Guess: in the last bin. Seen: below. So: a model whose sigmoid ends at 1, as fp16 and bf16 do
# from a logit of 9 and 6 on, has a higher ECE than the same in fp32. Clamp below 1, or compute in fp32.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import torch
from torchmetrics.classification import BinaryCalibrationError

scores, labels = torch.tensor([1.0, 1.0, 1.0, 0.95, 0.95]), torch.tensor([0, 0, 0, 1, 1])
by_hand = (scores.mean() - labels.float().mean()).abs().item()
values = {top: BinaryCalibrationError(n_bins=15)(scores.clamp(max=top), labels).item() for top in (1.0, 0.9999)}
print(f"one bin by hand {by_hand:.3f}; torchmetrics {values}")
assert abs(by_hand - 0.58) < 1e-6 and abs(values[1.0] - 0.62) < 1e-6 and abs(values[0.9999] - 0.58) < 1e-3
for kind, logit in ((torch.float32, 17.0), (torch.float16, 9.0), (torch.bfloat16, 6.5)):
    print(f"{kind}: the sigmoid of {logit} is {torch.tensor(logit).to(kind).sigmoid().item()}")
    assert torch.tensor(logit).to(kind).sigmoid() == 1 > torch.tensor(logit - 2.5).to(kind).sigmoid()
EOF
