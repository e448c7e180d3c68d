"""How often a prompt's reports earn nothing at all, smoothed over the steps that saw it (OraPO)."""

from __future__ import annotations

from typing import Any


class ZeroRate:
    """OraPO eq. 9: z ← m·z + (1 - m)·share, per prompt; the first share initialises it."""

    def __init__(self, momentum: float) -> None:
        self.momentum = momentum
        self._rates: dict[str, float] = {}

    def __call__(self, prompt: str, share: float) -> float:
        """Takes in the share of zero rewards of one group; the smoothed rate after it."""
        before = self._rates.get(prompt, share)
        self._rates[prompt] = self.momentum * before + (1.0 - self.momentum) * share
        return self._rates[prompt]

    def state_dict(self) -> dict[str, Any]:
        """Prompt to rate."""
        return dict(self._rates)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Forgets what was seen and goes on from `state`."""
        self._rates = {str(prompt): float(rate) for prompt, rate in state.items()}
