"""Select training studies: by diversity, balance or a list."""

from rrgtrain.select.balance import balanced
from rrgtrain.select.training_subset import training_subset

__all__ = ["balanced", "training_subset"]
