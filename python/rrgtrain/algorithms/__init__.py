"""Algorithms: from rewards to token-level advantages and injected members."""

from rrgtrain.algorithms.base import Algorithm, Context
from rrgtrain.algorithms.group import Group, Member, group_offsets
from rrgtrain.algorithms.objective import Objective, Preference
from rrgtrain.algorithms.registry import build_algorithm

__all__ = [
    "Algorithm",
    "Context",
    "Group",
    "Member",
    "Objective",
    "Preference",
    "build_algorithm",
    "group_offsets",
]
