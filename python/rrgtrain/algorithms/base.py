"""Define an algorithm: it completes groups, and turns rewards into advantages.

The loop calls these functions and knows no algorithm by name; README.md shows one of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
import torch

from rrgdata.study import Study
from rrgkern import PolicyLoss, group_advantages
from rrgpolicy.model.codec import ReportCodec
from rrgtrain.algorithms.group import Group, Member, group_offsets, scored_members
from rrgtrain.algorithms.objective import Objective
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe, RlSettings, RolloutSettings

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

    def state_dict(self) -> dict[str, Any]:
        """A copy of the state."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave."""
        ...


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
