"""Define groups, a prompt and its competing reports, and the objective of an update.

loss = Σ_b group_weight_b · policy loss of group b (advantages, weight, mask)
     + preference loss over `preference.pairs`
     + Σ_i likelihood_i · mean over the tokens of member i of -log π

Every term is a weighting of the same log-probabilities, so one packed forward serves all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rrgdata.study import Study
from rrgkern import PreferencePairs
from rrgpolicy.model.prompt import EncodedPrompt


@dataclass(frozen=True)
class Member:
    """One report of a group.

    `ids` [T] int64 are the completion's tokens, end of turn included when it stopped there.
    `origin` says where it came from; anything but "sampled" was not drawn from the policy
    and is trained at ratio 1 (`on_policy` of the policy loss), in several updates on a batch at the
    ratio to its log-probability at rollout. `parent` is the index of the member
    an edit was made from, `steps` what the edit did: (rule, removed text, added text). A member
    that is not scored is in the packed forward only: it has no reward and no advantage, and
    counts in no mean and no length of the policy loss (OraPO's oracle). `corrected` asks for the
    sampler correction: `sampler_logps` are another engine's than the policy's. `terms` are its
    rewards by term, those that count at the step, where the algorithm is given them.
    """

    ids: torch.Tensor
    text: str
    origin: str = "sampled"
    finished: bool = True
    sampler_logps: torch.Tensor | None = None
    parent: int | None = None
    steps: tuple[tuple[str, str, str], ...] = ()
    scored: bool = True
    corrected: bool = False
    terms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """A study, its encoded prompt and its members, in a fixed order.

    `rank`: the process that computes it; the prompt has its pixels there only.
    """

    index: int
    study: Study
    prompt: EncodedPrompt
    members: tuple[Member, ...] = field(default=())
    rank: int = 0

    def with_members(self, extra: list[Member]) -> Group:
        return replace(self, members=self.members + tuple(extra))


def group_offsets(groups: list[Group]) -> torch.Tensor:
    """Compute the start of each group in the flattened order: [B + 1] int64."""
    sizes = torch.tensor([0, *(len(g.members) for g in groups)], dtype=torch.int64)
    return sizes.cumsum(0)


def members(groups: list[Group]) -> list[Member]:
    """All members, group after group."""
    return [member for group in groups for member in group.members]


def drawn_logps(flat: Sequence[Member]) -> Tensor:
    """[T] the sampler's log-probabilities of the members' tokens, NaN where nobody drew them."""
    rows = [
        torch.full((len(m.ids),), torch.nan) if m.sampler_logps is None else m.sampler_logps
        for m in flat
    ]
    return torch.cat(rows)


def scored_members(groups: list[Group]) -> torch.Tensor:
    """[S] bool, which members have a reward and an advantage."""
    return torch.tensor([m.scored for m in members(groups)], dtype=torch.bool)


def token_offsets(groups: list[Group]) -> torch.Tensor:
    """Compute the start of each member among all tokens: [S + 1] int64."""
    lengths = torch.tensor([0, *(len(m.ids) for m in members(groups))], dtype=torch.int64)
    return lengths.cumsum(0)


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


@dataclass(frozen=True)
class Preference:
    """Name the members that are preferred to others; see `rrgkern.preference_loss`.

    A pair stays within its group. Its weight says how much it counts in the loss of the batch.
    """

    pairs: PreferencePairs
    tau: float = 1.0
    length_normalized: bool = True


@dataclass(frozen=True)
class Objective:
    """Hold one step's objective over S members with N tokens in B groups.

    All are in group order.

    advantages: [S] or [S, 1], one per member, or [N] or [1, N], one per token. Where S == N one
        axis is read as [S]. What stands at a member that is not scored is not read.
    weight: [N] factor of each token's advantage (DiTPO). None: 1.
    mask: [N] bool, False for a token of a scored member that the policy loss leaves out, also
        when it counts the length of the member. None: all take part.
    group_weight: [B] factor of each group's policy loss, KL included. None: 1.
    preference: adds its loss; needs a reference model.
    likelihood: [S] weight of each member's mean cross-entropy. None: 0.
    logs_gradient_ratio: compare ∂loss/∂logp of preference and likelihood with that of the policy
        loss, for the log.
    metrics: numbers for the log.
    """

    advantages: Tensor
    weight: Tensor | None = None
    mask: Tensor | None = None
    group_weight: Tensor | None = None
    preference: Preference | None = None
    likelihood: Tensor | None = None
    logs_gradient_ratio: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
