"""Which training studies reinforcement learning sees: drawn by diversity, balanced, or listed."""

from rrgtrain.select.balance import balanced
from rrgtrain.select.training_subset import training_subset

__all__ = ["balanced", "training_subset"]
