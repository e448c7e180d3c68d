"""Parts of a rollout batch, each updated on as a batch of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rrgkern import PreferencePairs
from rrgtrain.algorithms.group import Group, group_offsets, token_offsets
from rrgtrain.algorithms.objective import Objective, Preference
from rrgtrain.train.update import FixedLogps

Part = tuple[list[Group], Objective, FixedLogps | None]


def minibatches(
    groups: list[Group],
    objective: Objective,
    fixed: FixedLogps | None,
    size: int | None,
    key: tuple[int, ...],
) -> Iterator[Part]:
    """Parts of `size` groups in an order drawn from `key`; the whole batch if `size` is None."""
    if size is None or size >= len(groups):
        yield groups, objective, fixed
        return
    order = np.random.default_rng(key).permutation(len(groups)).tolist()
    for begin in range(0, len(order), size):
        yield part_of(groups, objective, fixed, sorted(order[begin : begin + size]))


def part_of(
    groups: list[Group], objective: Objective, fixed: FixedLogps | None, chosen: list[int]
) -> Part:
    """The groups `chosen`, with what the objective says of them.

    Preference and likelihood are weighed for the whole batch, so they grow by how much smaller
    the part is; the policy loss is scaled by the update itself.
    """
    bounds, tokens = group_offsets(groups).tolist(), token_offsets(groups).tolist()
    rows = [r for b in chosen for r in range(bounds[b], bounds[b + 1])]
    spans = [torch.arange(tokens[r], tokens[r + 1]) for r in rows]
    index, members = torch.cat(spans), torch.tensor(rows)
    larger = len(groups) / len(chosen)

    def at(values: Tensor | None, where: Tensor) -> Tensor | None:
        return None if values is None else values[where]

    per_token = len(objective.advantages) == tokens[-1]
    likelihood = at(objective.likelihood, members)
    part = replace(
        objective,
        advantages=objective.advantages[index if per_token else members],
        weight=at(objective.weight, index),
        mask=at(objective.mask, index),
        group_weight=at(objective.group_weight, torch.tensor(chosen)),
        preference=_preference(objective, members, bounds[-1], larger),
        likelihood=None if likelihood is None else likelihood * larger,
    )
    kept = None
    if fixed is not None:
        kept = FixedLogps(fixed.old[index], at(fixed.ref, index))
    return [groups[b] for b in chosen], part, kept


def _preference(
    objective: Objective, members: Tensor, count: int, larger: float
) -> Preference | None:
    if objective.preference is None:
        return None
    place = torch.full((count,), -1)
    place[members] = torch.arange(len(members))
    pairs = objective.preference.pairs
    positive, negative = place[pairs.positive], place[pairs.negative]
    inside = (positive >= 0) & (negative >= 0)
    chosen = PreferencePairs(positive[inside], negative[inside], pairs.weight[inside] * larger)
    return replace(objective.preference, pairs=chosen)
