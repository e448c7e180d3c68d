"""GRPO in Lightning: each prompt is computed once for all its reports.

    pip install pytorch-lightning
    python examples/lightning_loop.py

Lightning calls `training_step` through the wrapper of its strategy, so `shared_prefix_logps` runs
in the wrapped forward and gradients are averaged. It samples in the step: a rollout is a batch.
"""

from __future__ import annotations

import sys

import pytorch_lightning as lightning
import torch
from tiny_grpo import STUDIES, Loss, open_rewards, roll_out
from torch import Tensor


class GRPO(lightning.LightningModule):
    """One rollout and one update a step."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = Loss()
        self.service = open_rewards()
        self.means: list[float] = []

    def training_step(self, studies: list[tuple[Tensor, str]], index: int) -> Tensor:
        """Compute the loss of a fresh rollout on these studies."""
        rollout = roll_out(self.loss.model, studies, self.service)
        self.means.append(rollout.reward)
        self.log("reward", rollout.reward, prog_bar=True, batch_size=len(studies))
        return self.loss(rollout.prompts, rollout.reports, rollout.advantages)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW over the policy."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main(steps: int = 40, **options: object) -> list[float]:
    """Train for some steps; returns the mean reward of each."""
    lightning.seed_everything(0)
    module = GRPO()
    loader = torch.utils.data.DataLoader(STUDIES, batch_size=len(STUDIES), collate_fn=list)
    options = dict(logger=False, enable_checkpointing=False, accelerator="auto") | options
    lightning.Trainer(max_steps=steps, max_epochs=steps, **options).fit(module, loader)
    return module.means


if __name__ == "__main__":
    print(f"last reward {main(*map(int, sys.argv[1:]))[-1]:.3f}")
