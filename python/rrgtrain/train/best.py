"""Which weights of a training are kept, by its validations."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch

from rrgtrain.dist.sharding import as_parameter
from rrgtrain.policy.policy import Policy
from rrgtrain.schema import SftSettings

Weights = dict[str, torch.Tensor]


class Best:
    """Keeps a copy of the trainable weights of the validation that is best by the metric `by`;
    `restore` puts them back."""

    def __init__(self, policy: Policy, by: str) -> None:
        self.policy, self.by = policy, by
        self.value, self.step = -math.inf, 0
        self._kept: Weights = {}

    def offer(self, step: int, value: float) -> None:
        """A validation after `step` steps; ties keep the earlier weights."""
        if value > self.value:
            self.value, self.step, self._kept = value, step, self._copy()

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint; the tensors are not copied, since they never change."""
        return {"by": self.by, "value": self.value, "step": self.step, "kept": dict(self._kept)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave.

        Values of another metric are not comparable: `value` is then minus infinity, with a warning,
        and the kept weights stay until the next validation.
        """
        # Checkpoints of before eval.best_by chose by micro-F1 and say so by the name of the value.
        by = state.get("by", "micro_f1")
        self.value = state["value"] if "value" in state else state["f1"]
        self.step, self._kept = state["step"], self._placed(state["kept"])
        if by != self.by:
            self.value = -math.inf
            if self._kept:
                warnings.warn(
                    f"the checkpoint chose its best weights by {by}; from the next validation on "
                    f"eval.best_by={self.by} chooses",
                    stacklevel=2,
                )

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

    def __init__(self, policy: Policy, by: str, min_delta: float) -> None:
        super().__init__(policy, by)
        self._min_delta, self._plateau = min_delta, -math.inf
        self._last: tuple[int, float, Weights] | None = None

    def offer(self, step: int, value: float) -> None:
        """A validation after `step` steps."""
        now = step, value, self._copy()
        if value > self._plateau + self._min_delta:
            self._plateau = value
            self.step, self.value, self._kept = self._last or now
        self._last = now

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint; the tensors are not copied, since they never change."""
        last = None if self._last is None else [*self._last[:2], dict(self._last[2])]
        return {**super().state_dict(), "plateau": self._plateau, "last": last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave."""
        super().load_state_dict(state)
        if math.isinf(self.value):  # chosen by another metric: what follows is judged anew
            return
        self._plateau, last = state["plateau"], state["last"]
        self._last = None if last is None else (last[0], last[1], self._placed(last[2]))


def chosen_of(policy: Policy, settings: SftSettings, by: str) -> Best:
    """What keeps the checkpoint that `sft.choose` asks for, by the metric `by`."""
    if settings.choose == "before_convergence":
        return BeforeConvergence(policy, by, settings.min_delta)
    return Best(policy, by)
