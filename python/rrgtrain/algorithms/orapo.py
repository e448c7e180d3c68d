"""OraPO: the reference report, an oracle, teaches by preference where sampling earns nothing.

Per prompt, loss = (1 - w)·L_GRPO + w·L_DPO (eq. 11), averaged over the prompts. The oracle is one
more sequence of the packed forward and never a scored member: it has no reward, no
advantage, no KL, and counts in no mean. L_DPO prefers it to every sampled report of its group
(eq. 12), with log-probabilities per token (LN-DPO). With `oracle.loss=sft` the oracle's mean
cross-entropy stands in the place of L_DPO, the paper's "GRPO + SFT".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from rrgkern import PreferencePairs
from rrgtrain.algorithms.base import (
    Advantages,
    Algorithm,
    Completed,
    Reencode,
    as_objective,
    chain,
    refuse_blocks,
    with_reference,
)
from rrgtrain.algorithms.group import Group, Objective, Preference, group_offsets, members
from rrgtrain.errors import UserError
from rrgtrain.schema import OracleSettings, RewardSettings, RlSettings

ORIGIN = "oracle"
BATCH = ""  # in the place of a study's id: no study has it


def build(
    settings: OracleSettings, rl: RlSettings, reward: RewardSettings, inner: Algorithm
) -> Algorithm:
    """OraPO over `inner`; UserError for a mixing weight that makes no sense or no reports."""
    if settings.high < settings.low:
        raise UserError(f"oracle.low={settings.low} exceeds oracle.high={settings.high}; swap them")
    if rl.resample:
        raise UserError(
            f"rl.resample={rl.resample} leaves out the groups that earn nothing, from which "
            "OraPO's oracle teaches; use rl.resample=0"
        )
    refuse_blocks(reward.blocks, "OraPO's oracle is a reference, without any")
    rates = ZeroRate(settings.momentum, batch=settings.smooth == "batch")
    return replace(
        inner,
        complete=chain(inner.complete, with_oracle),
        advantages=mixed(inner.advantages, settings, rates),
        needs_reports=True,
        needs_reference=inner.needs_reference or settings.loss == "dpo",
        state={**inner.state, "zero_rate": rates},
    )


def with_oracle(groups: list[Group], step: int, reencode: Reencode) -> Completed:
    """Completes each group with its reference report, which is not scored."""
    return [with_reference(group, reencode, ORIGIN, scored=False) for group in groups], {}


def mixed(inner: Advantages, settings: OracleSettings, rates: ZeroRate) -> Advantages:
    """Mix the objective of `inner`, times 1 - w, with the oracle's loss, times w."""

    def advantages(groups: list[Group], rewards: torch.Tensor) -> Objective:
        objective = as_objective(inner(groups, rewards))
        shares = zero_shares(groups, rewards)
        smooth = rates.of([g.study.id for g in groups], shares)
        weight = torch.tensor([mixing_weight(z, settings) for z in smooth], dtype=torch.float64)
        outer = 1.0 if objective.group_weight is None else objective.group_weight
        mixture = replace(
            objective,
            group_weight=(1.0 - weight) * outer,
            logs_gradient_ratio=settings.log_ratio,
            metrics={
                **objective.metrics,
                "oracle/zero_rate": sum(shares) / len(shares),
                "oracle/weight": float(weight.mean()),
            },
        )
        per_prompt = weight / len(groups)
        if settings.loss == "sft":
            return replace(mixture, likelihood=oracle_likelihood(groups, per_prompt))
        pairs = oracle_against_sampled(groups, per_prompt)
        return replace(
            mixture, preference=Preference(pairs, settings.tau, settings.length_normalized)
        )

    return advantages


def zero_shares(groups: list[Group], rewards: torch.Tensor) -> list[float]:
    """Each group's share of sampled reports whose reward is exactly 0 (eq. 8)."""
    sampled = torch.tensor([m.origin == "sampled" and m.scored for m in members(groups)])
    zero = sampled & (rewards == 0)
    bounds = group_offsets(groups).tolist()
    return [
        float(zero[a:b].sum()) / max(1, int(sampled[a:b].sum()))
        for a, b in itertools.pairwise(bounds)
    ]


def mixing_weight(rate: float, settings: OracleSettings) -> float:
    """w = clip(low + (high - low)·rate^sharpness, low, high) (eq. 10)."""
    raw = settings.low + (settings.high - settings.low) * math.pow(rate, settings.sharpness)
    return min(max(raw, settings.low), settings.high)


def oracle_against_sampled(groups: list[Group], prompt_weight: torch.Tensor) -> PreferencePairs:
    """Prefer the oracle to each of its group's K sampled reports that are scored.

    Each pair weighs `prompt_weight` / K.

    Edited members are no negatives: half of what they say is the oracle's own.
    """
    positive, negative, weight = [], [], []
    first = 0
    for group, share in zip(groups, prompt_weight.tolist(), strict=True):
        places = range(first, first + len(group.members))
        origins = [m.origin for m in group.members]
        drawn = zip(places, group.members, strict=True)
        worse = [s for s, m in drawn if m.origin == "sampled" and m.scored]
        positive += [first + origins.index(ORIGIN)] * len(worse)
        negative += worse
        weight += [share / len(worse) for _ in worse]
        first += len(group.members)
    return PreferencePairs(
        torch.tensor(positive, dtype=torch.int64),
        torch.tensor(negative, dtype=torch.int64),
        torch.tensor(weight, dtype=torch.float64),
    )


def oracle_likelihood(groups: list[Group], prompt_weight: torch.Tensor) -> torch.Tensor:
    """[S]: the weight of each prompt at its oracle, 0 elsewhere."""
    return torch.tensor(
        [
            share if member.origin == ORIGIN else 0.0
            for group, share in zip(groups, prompt_weight.tolist(), strict=True)
            for member in group.members
        ],
        dtype=torch.float64,
    )


class ZeroRate:
    """Smooth the share of reports that earn nothing, over a prompt's steps.

    Eq. 9: z ← m·z + (1 - m)·share; one z per prompt or, with `batch`, per minibatch. The first
    share initialises it: a prompt that is seen once is not smoothed.
    """

    def __init__(self, momentum: float, *, batch: bool = False) -> None:
        self.momentum, self.batch = momentum, batch
        self._rates: dict[str, float] = {}

    def of(self, prompts: Sequence[str], shares: Sequence[float]) -> list[float]:
        """Take in each group's share of zero rewards; return the smoothed rates."""
        if self.batch:
            return [self._after(BATCH, sum(shares) / len(shares))] * len(shares)
        return [self._after(p, share) for p, share in zip(prompts, shares, strict=True)]

    def _after(self, prompt: str, share: float) -> float:
        before = self._rates.get(prompt, share)
        self._rates[prompt] = self.momentum * before + (1.0 - self.momentum) * share
        return self._rates[prompt]

    def state_dict(self) -> dict[str, Any]:
        """Prompt to rate."""
        return dict(self._rates)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Forgets what was seen and goes on from `state`."""
        self._rates = {str(prompt): float(rate) for prompt, rate in state.items()}
