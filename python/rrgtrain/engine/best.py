"""Which weights of a training are kept, by its validations."""

from __future__ import annotations

from typing import Any

import torch

from rrgtrain.engine.parallel import as_parameter
from rrgtrain.policy.policy import Policy
from rrgtrain.schema import Sft

Weights = dict[str, torch.Tensor]


class Best:
    """Keeps a copy of the trainable weights of the best validation; `restore` puts them back."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.f1, self.step = -1.0, 0
        self._kept: Weights = {}

    def offer(self, step: int, f1: float) -> None:
        """A validation after `step` steps; ties keep the earlier weights."""
        if f1 > self.f1:
            self.f1, self.step, self._kept = f1, step, self._copy()

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint; the tensors are not copied, since they never change."""
        return {"f1": self.f1, "step": self.step, "kept": dict(self._kept)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave."""
        self.f1, self.step = state["f1"], state["step"]
        self._kept = self._placed(state["kept"])

    @torch.no_grad()
    def restore(self) -> None:
        parameters = dict(self.policy.model.named_parameters())
        for name, value in self._kept.items():
            parameters[name].copy_(value)

    def _copy(self) -> Weights:
        trained = self.policy.model.named_parameters()
        return {n: p.detach().clone() for n, p in trained if p.requires_grad}

    def _placed(self, weights: Weights) -> Weights:
        parameters = dict(self.policy.model.named_parameters())
        return {n: as_parameter(value, parameters[n]) for n, value in weights.items()}


class BeforeConvergence(Best):
    """Keeps the weights of the validation before the one at which training had converged.

    Converged is the last validation that brought more than `min_delta`; with one validation an
    epoch, RL then starts from the epoch before convergence, so that it still has something to
    sample (EditGRPO, appendix E). Where the first validation is the last to bring anything, it is
    kept itself: nothing came before it.
    """

    def __init__(self, policy: Policy, min_delta: float) -> None:
        super().__init__(policy)
        self._min_delta, self._plateau = min_delta, -1.0
        self._last: tuple[int, float, Weights] | None = None

    def offer(self, step: int, f1: float) -> None:
        """A validation after `step` steps."""
        now = step, f1, self._copy()
        if f1 > self._plateau + self._min_delta:
            self._plateau = f1
            self.step, self.f1, self._kept = self._last or now
        self._last = now

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint; the tensors are not copied, since they never change."""
        last = None if self._last is None else [*self._last[:2], dict(self._last[2])]
        return {**super().state_dict(), "plateau": self._plateau, "last": last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave."""
        super().load_state_dict(state)
        self._plateau, last = state["plateau"], state["last"]
        self._last = None if last is None else (last[0], last[1], self._placed(last[2]))


def chosen_of(policy: Policy, settings: Sft) -> Best:
    """What keeps the checkpoint that `sft.choose` asks for."""
    if settings.choose == "before_convergence":
        return BeforeConvergence(policy, settings.min_delta)
    return Best(policy)
