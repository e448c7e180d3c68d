#!/bin/sh
# accelerate 1.15.0 and PyTorch Lightning 2.6.6: 10 batches accumulated by 4 make three steps, and the last, of two
# batches, has half of their mean as its gradient: each loss is divided by 4 whatever the window holds. Guess: their
# mean, by both. Seen: below.
# So: a small data set steps shorter at the end of each epoch; with 9 batches the ninth counts a quarter. Drop the rest of an
# epoch, or scale the last window's loss.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" accelerate==1.15.0 pytorch-lightning==2.6.6 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import logging

import pytorch_lightning
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
torch.manual_seed(0)
X, Y, W = torch.randn(10, 4), torch.randn(10, 1), torch.randn(1, 4)
LOADER = DataLoader(TensorDataset(X, Y), batch_size=1)


def model() -> torch.nn.Linear:
    linear = torch.nn.Linear(4, 1, bias=False)
    linear.weight.data.copy_(W)
    return linear


def loss(linear: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (linear(x) - y).square().mean()


def by_accelerate() -> list[torch.Tensor]:
    accelerator, gradients = Accelerator(gradient_accumulation_steps=4, cpu=True), []
    linear = model()
    linear, optimizer, loader = accelerator.prepare(linear, torch.optim.SGD(linear.parameters(), lr=0.0), LOADER)
    for x, y in loader:
        with accelerator.accumulate(linear):
            accelerator.backward(loss(linear, x, y))
            if accelerator.sync_gradients:
                gradients.append(linear.weight.grad.clone())
            optimizer.step()
            optimizer.zero_grad()
    return gradients


class Module(pytorch_lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.gradients = model(), []

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return loss(self.linear, *batch)

    def on_before_optimizer_step(self, _: torch.optim.Optimizer) -> None:
        self.gradients.append(self.linear.weight.grad.clone())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


module = Module()
silent = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
pytorch_lightning.Trainer(
    max_epochs=1, accumulate_grad_batches=4, accelerator="cpu", **dict.fromkeys(silent, False)
).fit(module, LOADER)
for name, gradients in (("accelerate", by_accelerate()), ("Lightning", module.gradients)):
    for number, rows in enumerate((slice(0, 4), slice(4, 8), slice(8, 10))):
        linear = model()
        (mean,) = torch.autograd.grad(loss(linear, X[rows], Y[rows]), linear.weight)
        share = (gradients[number] / mean).mean().item()
        print(f"{name}: step {number + 1} has {share:.3f} of the mean gradient of its batches")
        assert abs(share - (0.5 if number == 2 else 1)) < 1e-5
EOF
