#!/bin/sh
# captum 0.9.0: `GuidedBackprop` and `Deconvolution` of a model whose forward calls `torch.relu` or `F.relu` are its plain gradient.
# They hook modules of the class ReLU and find none; the only warning is the one that also comes where they find some.
# Guess: as of the same model with nn.ReLU, or a warning of its own. Seen: below.
# So: two saliency maps that are said to differ are one. Many networks of transformers call functions; compare with Saliency first.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" captum==0.9.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import warnings

import torch
from captum.attr import Deconvolution, GuidedBackprop, Saliency
from torch import nn


class Modules(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.act = nn.Linear(6, 8), nn.Linear(8, 1), nn.ReLU()

    def forward(self, x):
        return self.last(self.act(self.first(x)))


class Functions(Modules):
    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


x = torch.randn(2, 6, requires_grad=True)
for method in (GuidedBackprop, Deconvolution):
    maps, told = [], []
    for model in (Modules(), Functions()):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            maps.append(method(model).attribute(x))
        told.append([str(w.message)[:40] for w in caught])
    plain = Saliency(Functions()).attribute(x, abs=False)
    same = [bool(torch.equal(each, plain)) for each in maps]
    print(f"{method.__name__}: the plain gradient with modules {same[0]}, with functions {same[1]}; told {told}")
    assert same == [False, True] and told[0] == told[1]
EOF
