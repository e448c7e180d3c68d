"""What the log says of a batch of groups and its rewards."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import torch

from rrgtrain.algorithms.group import Group, competing, group_offsets, members


def spread(groups: list[Group], values: np.ndarray) -> torch.Tensor:
    """[S] fp64: the values of the members that compete at their places, NaN at the others."""
    compete = competing(groups)
    whole = torch.full((len(compete),), float("nan"), dtype=torch.float64)
    whole[compete] = torch.as_tensor(values, dtype=torch.float64)
    return whole


def zero_variance(groups: list[Group], total: torch.Tensor) -> int:
    """How many groups have competing members that all earn the same reward."""
    offsets = group_offsets(groups).tolist()
    compete = competing(groups)
    parts = [total[a:b][compete[a:b]] for a, b in itertools.pairwise(offsets)]
    return sum(bool((part == part[0]).all()) for part in parts)


def surprise(sampled: list[Group]) -> dict[str, float]:
    """The policy's entropy in nats a token, estimated by what was drawn: the mean of -log p.

    Left out where the engine reports no log-probabilities.
    """
    told = [m.sampler_logps for m in members(sampled) if m.sampler_logps is not None]
    return {"entropy": -float(torch.cat(told).mean())} if told else {}


def unfinished(groups: list[Group]) -> float:
    """Share of the members that compete and have no end."""
    ended = [m.finished for m in members(groups) if m.competes]
    return sum(not e for e in ended) / len(ended)


def reward_rows(groups: list[Group], scores: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Means of every reward and of the total by origin, the share of sampled reports that earn
    nothing at all and that of groups without any that earns something (OraPO, figure 2), and the
    mean length of a report.

    `scores` are those of the members that compete, in their order.
    """
    origins = [member.origin for member in members(groups) if member.competes]
    rows = {f"reward/{name}": float(value.mean()) for name, value in scores.items()}
    for origin in sorted(set(origins)):
        chosen = [v for v, o in zip(scores["total"], origins, strict=True) if o == origin]
        rows[f"reward_{origin}"] = float(sum(chosen) / len(chosen))
    drawn = [v for v, o in zip(scores["total"], origins, strict=True) if o == "sampled"]
    if drawn:
        rows["zero_reward"] = sum(v == 0 for v in drawn) / len(drawn)
        rows["zero_groups"] = _zero_groups(groups, scores["total"])
    tokens = sum(len(m.ids) for m in members(groups) if m.competes)
    rows["report_tokens"] = float(tokens / len(origins))
    return rows


def _zero_groups(groups: list[Group], total: np.ndarray) -> float:
    """Share of the groups with sampled reports of which all those earn exactly 0."""
    values, shares = iter(total), []
    for group in groups:
        own = [(m.origin, next(values)) for m in group.members if m.competes]
        drawn = [v for origin, v in own if origin == "sampled"]
        if drawn:
            shares.append(all(v == 0 for v in drawn))
    return sum(shares) / len(shares)
