"""Leave members out of their group once rewards are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rrgtrain.algorithms.group import Group

Scores = Mapping[str, np.ndarray]
Notes = Mapping[str, Sequence[Mapping[str, Any]]]
Scored = tuple[list[Group], Scores, Notes]


def read_members(groups: list[Group], scores: Scores, notes: Notes) -> Scored:
    """Leave out the members that have no score, for their judge was not read."""
    unread = np.logical_or.reduce([np.isnan(value) for value in scores.values()])
    return without(unread, groups, scores, notes)


def without(left_out: np.ndarray, groups: list[Group], scores: Scores, notes: Notes) -> Scored:
    """Score some members no longer, with their scores and notes; left_out: bool `[scored]`."""
    if not left_out.any():
        return groups, scores, notes
    rows = iter(left_out.tolist())
    left = [
        replace(
            group,
            members=tuple(
                replace(m, scored=not next(rows)) if m.scored else m for m in group.members
            ),
        )
        for group in groups
    ]
    taken = np.flatnonzero(~left_out).tolist()
    kept_notes = {name: [each[i] for i in taken] for name, each in notes.items() if len(each)}
    return left, {name: value[~left_out] for name, value in scores.items()}, kept_notes
