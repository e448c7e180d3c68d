"""Algorithms: from rewards to token-level advantages and injected members."""

from rrgtrain.algorithms.base import Algorithm, Context
from rrgtrain.algorithms.editgrpo import Edited, edit_reports, sentence_entities, whole_sentences
from rrgtrain.algorithms.group import Group, Member, Objective, Preference, group_offsets
from rrgtrain.algorithms.registry import build_algorithm, find_layers

__all__ = [
    "Algorithm",
    "Context",
    "Edited",
    "Group",
    "Member",
    "Objective",
    "Preference",
    "build_algorithm",
    "edit_reports",
    "find_layers",
    "group_offsets",
    "sentence_entities",
    "whole_sentences",
]
