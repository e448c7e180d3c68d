"""Normalise every term of the reward within its group, then sum them (GDPO).

Liu et al., 2026 (arXiv 2601.05242). Summed first, rewards of (1, 0) and (0, 1) are one reward, and
a term that spreads wide hides one that spreads little. The sum is divided by its spread over the
step, so that more terms make no longer steps.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from rrgkern import group_advantages
from rrgtrain.algorithms.base import Advantages
from rrgtrain.algorithms.group import Group, group_offsets, members, scored_members, token_offsets
from rrgtrain.errors import UserError
from rrgtrain.schema import RewardSettings, RlSettings

# What TRL adds to the deviation of the sums, and verl to their variance; verl's for a group.
EPS_OF_SEQUENCES, EPS_OF_TOKENS, EPS_OF_VERL = 1e-4, 1e-8, 1e-6


def decoupled(rl: RlSettings, reward: RewardSettings) -> Advantages:
    """Make the advantages of GDPO over the terms that members carry.

    Mean and spread are those of the scored members; the others get 0. UserError for `rl.std=none`,
    with which nothing is normalised, where no term counts from the first step, and for members
    that carry no term.
    """
    if rl.std == "none":
        raise UserError(
            "rl.combine=gdpo divides each term by its spread in the group, and rl.std=none divides "
            "by nothing; use rl.std=sample (TRL, verl) or population, or rl.combine=sum"
        )
    if not reward.counting(0.0):
        raise UserError(
            "rl.combine=gdpo, and reward.starts lets no term count from the first step; "
            "take one of them out of reward.starts"
        )
    by_token = rl.whiten == "token"
    eps = EPS_OF_VERL if by_token and rl.std == "sample" else None

    def advantages(groups: list[Group], rewards: Tensor) -> Tensor:
        scored, offsets = scored_members(groups), group_offsets(groups)
        total = torch.zeros(len(scored), dtype=torch.float64)
        for term in _terms(groups):
            values = torch.tensor([m.terms.get(term, 0.0) for m in members(groups)]).double()
            part = group_advantages(values, offsets, valid=scored, std=cast(Any, rl.std), eps=eps)
            total += reward.terms[term] * part.double()
        counts = token_offsets(groups).diff() if by_token else None
        return whitened(total, scored, counts).float()

    return advantages


def whitened(sums: Tensor, scored: Tensor, tokens: Tensor | None = None) -> Tensor:
    """Divide sums of normalised terms by their spread over all scored members.

    Args:
        sums: [S] fp64, 0 in the mean of every group.
        scored: [S] bool, the members that count; the others get 0.
        tokens: [S] int64, lengths: each member counts once a token, and the mean over tokens is
            taken off (verl). None: each counts once (TRL); the mean is 0 already, and a group
            without a spread keeps its exact zeros.

    Returns:
        [S] fp64. Fewer than two members or tokens, or equal sums, are all 0.
    """
    weight = scored.double() if tokens is None else torch.where(scored, tokens, 0).double()
    count = weight.sum()
    if count < 2:
        return torch.zeros_like(sums)
    mean = (weight * sums).sum() / count
    centred = torch.where(scored, sums - mean, 0.0)
    variance = (weight * centred.square()).sum() / (count - 1)
    if tokens is None:
        return torch.where(scored, sums, 0.0) / (variance.sqrt() + EPS_OF_SEQUENCES)
    return centred / (variance + EPS_OF_TOKENS).sqrt()


def _terms(groups: list[Group]) -> list[str]:
    terms = list(dict.fromkeys(term for m in members(groups) if m.scored for term in m.terms))
    if not terms and bool(scored_members(groups).any()):
        raise UserError(
            "rl.combine=gdpo needs the rewards by term, and no member carries any; hand over "
            "Batch.groups_with_terms(), or use rl.combine=sum"
        )
    return terms
