"""Algorithms: from rewards to token-level advantages and injected members."""

from rrgtrain.algorithms.base import Algorithm, build_algorithm
from rrgtrain.algorithms.group import Group, Member, group_offsets

__all__ = ["Algorithm", "Group", "Member", "build_algorithm", "group_offsets"]
