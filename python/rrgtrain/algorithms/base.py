"""Define an algorithm: it completes groups, and turns rewards into advantages.

The loop calls these functions and knows no algorithm by name; README.md shows one of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from rrgdata.study import Study
from rrgkern import PolicyLoss, group_advantages
from rrgpolicy.model.codec import ReportCodec
from rrgtrain.algorithms.group import (
    Group,
    Member,
    Objective,
    group_offsets,
    members,
    scored_members,
    token_offsets,
)
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe, RewardSettings, RlSettings, RolloutSettings

# (ids of a sampled report, changed text, first changed character) -> ids of the changed report
Reencode = Callable[[torch.Tensor, str, int], torch.Tensor]
# Groups with all members, and counts to log.
Completed = tuple[list[Group], dict[str, float]]
# (groups with sampled members, step, reencode) -> the completed groups
Complete = Callable[[list[Group], int, Reencode], Completed]
# (groups, total reward [S], NaN at members that are not scored) -> advantages, or an objective
Advantages = Callable[[list[Group], torch.Tensor], "torch.Tensor | Objective"]


@dataclass(frozen=True)
class Context:
    """Hold what an algorithm gets before the first step: codec and training studies."""

    codec: ReportCodec
    studies: Sequence[Study]


def no_check(studies: Sequence[Study]) -> None:
    """`check` of an algorithm that takes what the rewards take."""


class Stateful(Protocol):
    """Describe an algorithm that carries values from step to step, as JSON holds them."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def keep_all(groups: list[Group], totals: np.ndarray) -> np.ndarray:
    """`leaves_out` of an algorithm whose members all count: False, `[scored]`."""
    return np.zeros(len(totals), dtype=bool)


def no_preparation(context: Context) -> None:
    """`prepare` of an algorithm that needs nothing of the run."""


@dataclass(frozen=True)
class Algorithm:
    """`sampled` of the group's members are drawn from the policy; `complete` adds the rest.

    `advantages` gives advantages alone, or an `Objective`. `check` raises UserError for studies
    that lack what the algorithm needs, before anything is trained; `prepare` is called once before
    the first step. `leaves_out` says of the scored members, by their total rewards, which are none
    after all. `state` names what a checkpoint has to keep.
    """

    name: str
    sampled: int
    complete: Complete
    advantages: Advantages
    loss: PolicyLoss
    needs_reports: bool = False
    needs_reference: bool = False
    check: Callable[[Sequence[Study]], None] = no_check
    prepare: Callable[[Context], None] = no_preparation
    leaves_out: Callable[[list[Group], np.ndarray], np.ndarray] = keep_all
    state: Mapping[str, Stateful] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """Return the values that a resumed run needs; JSON can hold them."""
        return {name: part.state_dict() for name, part in self.state.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Puts back what `state_dict` gave; UserError when it is another algorithm's."""
        if set(state) != set(self.state):
            seen, wanted = (", ".join(sorted(s)) or "nothing" for s in (state, self.state))
            raise UserError(
                f"the checkpoint keeps {seen} of its algorithm, but rl.algorithm={self.name} keeps "
                f"{wanted}; resume with the recipe it was made with"
            )
        for name, part in self.state.items():
            part.load_state_dict(state[name])


# (recipe, the algorithm it builds on) -> the algorithm with its own part added
Layer = Callable[[Recipe, Algorithm], Algorithm]


def no_completion(groups: list[Group], step: int, reencode: Reencode) -> Completed:
    """`complete` of an algorithm whose members are all sampled."""
    return groups, {}


def with_reference(group: Group, reencode: Reencode, origin: str, *, scored: bool = True) -> Group:
    """Add the reference report to a group, encoded on its own."""
    report = group.study.report or ""
    ids = reencode(torch.zeros(0, dtype=torch.int64), report, 0)
    return group.with_members([Member(ids, report, origin, scored=scored)])


def refuse_blocks(blocks: str, why: str) -> None:
    """Raise UserError where reports stand in blocks, which the references do not have."""
    if blocks != "none":
        raise UserError(
            f"reward.blocks={blocks} scores the report between its tags, and {why}; "
            "use reward.blocks=none with a policy that writes plain reports, or rl.algorithm=grpo"
        )


def chain(first: Complete, second: Complete) -> Complete:
    """Completes with `first`, then with `second`; their counts stand side by side."""

    def complete(groups: list[Group], step: int, reencode: Reencode) -> Completed:
        groups, counts = first(groups, step, reencode)
        groups, more = second(groups, step, reencode)
        return groups, {**counts, **more}

    return complete


def mean_centred(std: str) -> Advantages:
    """Rewards minus the group's mean, divided by its spread as `std` says.

    Mean and spread are those of the scored members; the others get 0.
    """

    def advantages(groups: list[Group], rewards: torch.Tensor) -> torch.Tensor:
        scored, spread = scored_members(groups), cast(Any, std)
        if bool(scored.all()):
            return group_advantages(rewards, group_offsets(groups), std=spread)
        of_scored = torch.where(scored, rewards, 0.0)
        return group_advantages(of_scored, group_offsets(groups), valid=scored, std=spread)

    return advantages


def leave_one_out(groups: list[Group], rewards: Tensor) -> Tensor:
    """Subtract the mean of the others in its group from each reward (RLOO, arXiv 2402.14740)."""
    scored, sizes = scored_members(groups), group_offsets(groups).diff()
    counts = torch.stack([part.sum() for part in scored.split(sizes.tolist())])
    factor = counts / (counts - 1).clamp(min=1)
    centred = cast(Tensor, mean_centred("none")(groups, rewards))
    return centred * factor.repeat_interleave(sizes).to(rewards)


def of_the_step(groups: list[Group], rewards: Tensor) -> Tensor:
    """Divide what differs from a group's mean by the step's spread (REINFORCE++, 2501.03262)."""
    centred = cast(Tensor, mean_centred("none")(groups, rewards)).double()
    return whitened(centred, scored_members(groups), token_offsets(groups).diff()).to(rewards)


def as_objective(value: torch.Tensor | Objective) -> Objective:
    """Advantages alone, as the objective they are."""
    return value if isinstance(value, Objective) else Objective(value)


def loss_of(rl: RlSettings, rollout: RolloutSettings) -> PolicyLoss:
    """The policy loss that the section `rl` describes; UserError where its options clash."""
    try:
        return PolicyLoss(
            surrogate=rl.surrogate,
            ratio_level=rl.ratio_level,
            eps_low=rl.eps_low,
            eps_high=rl.eps_high,
            kl=rl.kl,
            kl_ratio_weight=rl.kl_ratio_weight,
            beta=rl.beta,
            sampler_level=rollout.level,
            sampler_mode="mask" if rollout.correction == "mask" else "truncate",
            sampler_max=rollout.cap,
        )
    except ValueError as error:
        raise UserError(f"rl: {error}") from error


# What TRL adds to the deviation of the sums, and verl to their variance; verl's for a group.
EPS_OF_SEQUENCES, EPS_OF_TOKENS, EPS_OF_VERL = 1e-4, 1e-8, 1e-6


def decoupled(rl: RlSettings, reward: RewardSettings) -> Advantages:
    """Normalise each term that members carry within its group, then sum them (GDPO).

    Liu et al., 2026 (arXiv 2601.05242). Summed first, rewards of (1, 0) and (0, 1) are one reward,
    and a term that spreads wide hides one that spreads little. The sum is divided by its spread
    over the step, so that more terms make no longer steps.

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
            total += reward.terms[term] * part
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
