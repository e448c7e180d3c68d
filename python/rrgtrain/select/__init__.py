"""Which training studies reinforcement learning sees: drawn by diversity, balanced, or listed."""

from rrgtrain.select.balance import balanced
from rrgtrain.select.narrow import narrow

__all__ = ["balanced", "narrow"]
