"""The best weights seen so far, by validation."""

from __future__ import annotations

import torch

from rrgtrain.policy.policy import Policy


class Best:
    """Keeps a copy of the trainable weights of the best validation; `restore` puts them back."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.f1, self.step = -1.0, 0
        self._kept: dict[str, torch.Tensor] = {}

    def offer(self, step: int, f1: float) -> None:
        """A validation after `step` steps; ties keep the earlier weights."""
        if f1 > self.f1:
            self.f1, self.step = f1, step
            trained = self.policy.model.named_parameters()
            self._kept = {n: p.detach().clone() for n, p in trained if p.requires_grad}

    @torch.no_grad()
    def restore(self) -> None:
        parameters = dict(self.policy.model.named_parameters())
        for name, value in self._kept.items():
            parameters[name].copy_(value)
