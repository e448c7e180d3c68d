"""Smooth the share of reports that earn nothing, over a prompt's steps (OraPO)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# No study has this id.
BATCH = ""


class ZeroRate:
    """Smooth rates by OraPO's eq. 9: z ← m·z + (1 - m)·share.

    One z per prompt or, with `batch`, per minibatch.

    The first share initialises it: a prompt that is seen once is not smoothed.
    """

    def __init__(self, momentum: float, *, batch: bool = False) -> None:
        self.momentum, self.batch = momentum, batch
        self._rates: dict[str, float] = {}

    def of(self, prompts: Sequence[str], shares: Sequence[float]) -> list[float]:
        """Take in each group's share of zero rewards; return the smoothed rates."""
        if self.batch:
            return [self._after(BATCH, sum(shares) / len(shares))] * len(shares)
        return [self._after(p, share) for p, share in zip(prompts, shares, strict=True)]

    def _after(self, prompt: str, share: float) -> float:
        before = self._rates.get(prompt, share)
        self._rates[prompt] = self.momentum * before + (1.0 - self.momentum) * share
        return self._rates[prompt]

    def state_dict(self) -> dict[str, Any]:
        """Prompt to rate."""
        return dict(self._rates)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Forgets what was seen and goes on from `state`."""
        self._rates = {str(prompt): float(rate) for prompt, rate in state.items()}
