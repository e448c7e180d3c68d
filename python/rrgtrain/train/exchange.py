"""The groups of a step, each made and scored by one rank, brought together on all.

What follows a rollout costs little beside it and the update: every rank sees the whole batch, in
the order of its prompts, and so advantages, normalisers, the draw of mini-batches and the rows of
the log are those of one process, whatever the algorithm makes of the batch. Only the forward of a
group stays with the rank that has its images.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rrgtrain.algorithms.group import Group, competing, group_offsets
from rrgtrain.dist import ranks


@dataclass(frozen=True)
class Rollouts:
    """`sampled` as they were drawn; `groups` completed; `counts` of what completed them; `scores`
    and `notes` (what a reward term kept of each report) of the members that compete, in their
    order."""

    sampled: list[Group]
    groups: list[Group] = field(default_factory=list)
    counts: Mapping[str, float] = field(default_factory=dict)
    scores: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


def of_all_ranks(own: Rollouts) -> Rollouts:
    """The whole batch from each rank's `ranks.shard` of it.

    Other ranks' groups come without pixels. A rank without groups has no counts and no scores.
    """
    if ranks.size() == 1:
        return own
    own = replace(own, sampled=_owned(own.sampled), groups=_owned(own.groups))
    light = replace(own, sampled=_light(own.sampled), groups=_light(own.groups))
    # plain mappings: what the rewards return may hold more than its values
    plain = replace(light, scores=dict(own.scores), notes=dict(own.notes))
    parts = ranks.gather(plain)
    parts[ranks.rank()] = own
    counts: dict[str, float] = {}
    for part in parts:
        for name, value in part.counts.items():
            counts[name] = counts.get(name, 0.0) + value
    busy = [part for part in parts if part.groups]
    noted = dict.fromkeys(name for part in busy for name in part.notes)
    nothing: dict[str, Any] = {}
    return Rollouts(
        ranks.unshard([part.sampled for part in parts]),
        ranks.unshard([part.groups for part in parts]),
        counts,
        {
            name: np.concatenate(ranks.unshard([_by_group(p, p.scores[name]) for p in busy]))
            for name in busy[0].scores
        },
        {
            name: list(
                itertools.chain.from_iterable(
                    ranks.unshard(
                        [_by_group(p, p.notes.get(name) or [nothing] * _reports(p)) for p in busy]
                    )
                )
            )
            for name in noted
        },
    )


def _by_group(part: Rollouts, values: Any) -> list[Any]:
    """`values` of the members that compete, cut where a group ends."""
    compete = competing(part.groups).tolist()
    sizes = [sum(compete[a:b]) for a, b in itertools.pairwise(group_offsets(part.groups).tolist())]
    ends = list(itertools.accumulate(sizes))
    return [values[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _reports(part: Rollouts) -> int:
    return int(competing(part.groups).sum())


def _owned(groups: list[Group]) -> list[Group]:
    return [replace(group, rank=ranks.rank()) for group in groups]


def _light(groups: list[Group]) -> list[Group]:
    return [replace(g, prompt=replace(g.prompt, pixel_values=None)) for g in groups]
