"""The best weights seen so far, by validation."""

from __future__ import annotations

from typing import Any

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

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint; the tensors are not copied, since they never change."""
        return {"f1": self.f1, "step": self.step, "kept": dict(self._kept)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave."""
        self.f1, self.step = state["f1"], state["step"]
        parameters = dict(self.policy.model.named_parameters())
        self._kept = {n: value.to(parameters[n].device) for n, value in state["kept"].items()}

    @torch.no_grad()
    def restore(self) -> None:
        parameters = dict(self.policy.model.named_parameters())
        for name, value in self._kept.items():
            parameters[name].copy_(value)
