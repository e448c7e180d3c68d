"""Pack the groups of a step once; cut them into mini-batches and micro-batches.

A report goes from `Member` and `Group` into `Batch`, and from there into one `MicroBatch`, whose
tensors the losses take. It is addressed by its row among the S members of the batch, its tokens by
their index among the N of all members, both in group order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rrgkern import PreferencePairs, loss_scale
from rrgpolicy.ranks import ranks
from rrgtrain.algorithms.base import as_objective
from rrgtrain.algorithms.group import Group, Objective, group_offsets, scored_members, token_offsets
from rrgtrain.errors import UserError
from rrgtrain.schema import RlSettings
from rrgtrain.train.micro_batch import MicroBatch, group_size, within_budget


@dataclass(frozen=True)
class Batch:
    """Hold the groups of a step on all ranks.

    With their rewards, and the objective laid out by token.

    groups: B groups with S members, N tokens in all; another rank's come without pixels.
    sampled: the groups as they were drawn, before an algorithm completed them.
    counts: numbers for the log of what completed them.
    scores: term -> float64 [scored members] in their order, "total" among them.
    notes: term -> a mapping per scored member, kept by the term for inspection.
    compared: the scores by which members of a group differ: the total, or several terms (GDPO).
    objective: what the algorithm asks of the update; see `with_objective`.
    advantages: [N], 0 where the mask is False. scale: [S], 0 at members without a reward.
    mask: bool [N] or None, tokens that the policy loss counts.
    old, ref: [N] log-probabilities of the policy that sampled and of the reference, where several
        updates on the batch share them; see `gradients.with_rollout_logps`.
    """

    groups: list[Group]
    sampled: list[Group] = field(default_factory=list)
    counts: Mapping[str, float] = field(default_factory=dict)
    scores: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    compared: Sequence[str] = ("total",)
    objective: Objective = field(default_factory=lambda: Objective(torch.zeros(0)))
    advantages: Tensor = field(default_factory=lambda: torch.zeros(0))
    scale: Tensor = field(default_factory=lambda: torch.zeros(0))
    mask: Tensor | None = None
    old: Tensor | None = None
    ref: Tensor | None = None

    @classmethod
    def of(cls, groups: list[Group], objective: Tensor | Objective, settings: RlSettings) -> Batch:
        """Make a batch of groups without rewards.

        It has only an objective, or advantages alone."""
        return cls(groups).with_objective(objective, settings)

    def of_all_ranks(self) -> Batch:
        """Make the whole batch from the part that each rank has scored.

        What follows a rollout costs little beside it and the update, so every rank sees the whole
        batch in the order of its prompts: advantages, normalisers, the draw of mini-batches and the
        log are those of one process. Only the forward of a group stays with the rank that has its
        images. A rank without groups has no counts and no scores.
        """
        if ranks.size() == 1:
            return self
        own = replace(self, sampled=_owned(self.sampled), groups=_owned(self.groups))
        light = replace(
            own, sampled=_without_pixels(own.sampled), groups=_without_pixels(own.groups)
        )
        # plain mappings: what the rewards return may hold more than its values
        parts = ranks.gather(replace(light, scores=dict(own.scores), notes=dict(own.notes)))
        parts[ranks.rank()] = own
        return joined(parts, ranks.unshard)

    def groups_with_terms(self) -> list[Group]:
        """The groups with each scored member's rewards by the terms that are `compared`."""
        rows = iter(range(int(self.scored.sum())))
        done = []
        for group in self.groups:
            own = []
            for member in group.members:
                if member.scored:
                    row = next(rows)
                    terms = {name: float(self.scores[name][row]) for name in self.compared}
                    member = replace(member, terms=terms)
                own.append(member)
            done.append(replace(group, members=tuple(own)))
        return done

    def with_objective(self, objective: Tensor | Objective, settings: RlSettings) -> Batch:
        """The batch with an objective, or with its advantages alone.

        The scale is that of the whole batch (`rl.aggregation`), so the losses of its micro-batches
        add up. Raises UserError for a tensor of another shape.
        """
        objective = as_objective(objective)
        count, tokens = len(self.scored), len(self.member_of_token)
        per_token = _is_per_token(objective.advantages, count, tokens)
        _check("weight", objective.weight, tokens, "token")
        _check("mask", objective.mask, tokens, "token")
        _check("group_weight", objective.group_weight, len(self.groups), "group")
        _check("likelihood", objective.likelihood, count, "member")
        mask = objective.mask
        if not bool(self.scored.all()):
            of_scored = self.scored[self.member_of_token]
            mask = of_scored if mask is None else mask & of_scored
        given = objective.advantages.flatten()
        advantages = given if per_token else given[self.member_of_token]
        if mask is not None:
            advantages = torch.where(mask, advantages, 0.0)
        scale = _scale(self.scored, self.offsets, objective.mask, settings)
        if objective.group_weight is not None:
            sizes = group_offsets(self.groups).diff()
            scale = scale * objective.group_weight.repeat_interleave(sizes)
        return replace(self, objective=objective, advantages=advantages, scale=scale, mask=mask)

    @cached_property
    def scored(self) -> Tensor:
        """[S] bool, the members that have a reward and an advantage."""
        return scored_members(self.groups)

    @cached_property
    def offsets(self) -> Tensor:
        """[S + 1] int64, where each member's tokens begin among the N of all."""
        return token_offsets(self.groups)

    @cached_property
    def member_of_token(self) -> Tensor:
        """[N] int64, the row of each token's member."""
        return torch.repeat_interleave(torch.arange(len(self.scored)), self.offsets.diff())

    @cached_property
    def rewards(self) -> Tensor:
        """[S] fp64, the total reward; NaN at members without one."""
        whole = torch.full((len(self.scored),), float("nan"), dtype=torch.float64)
        whole[self.scored] = torch.as_tensor(self.scores["total"], dtype=torch.float64)
        return whole

    @cached_property
    def has_gradient(self) -> Tensor:
        """[N] bool, the tokens of members that carry gradient even without a KL term."""
        extra = torch.zeros(len(self.scored), dtype=torch.bool)
        if self.objective.preference is not None:
            pairs = self.objective.preference.pairs
            extra[pairs.positive[pairs.weight != 0]] = True
            extra[pairs.negative[pairs.weight != 0]] = True
        if self.objective.likelihood is not None:
            extra |= self.objective.likelihood != 0
        return (self.advantages != 0) | extra[self.member_of_token]

    def mini_batches(
        self, size: int | None, settings: RlSettings, key: tuple[int, ...]
    ) -> Iterator[Batch]:
        """Cut the batch into parts of `size` groups, each an update of its own.

        Their order is drawn from `key`; the whole batch if `size` is None."""
        if size is None or size >= len(self.groups):
            yield self
            return
        order = np.random.default_rng(key).permutation(len(self.groups)).tolist()
        for begin in range(0, len(order), size):
            yield self.part(sorted(order[begin : begin + size]), settings)

    def part(self, chosen: list[int], settings: RlSettings) -> Batch:
        """The groups `chosen` with their part of the objective and of the log-probabilities.

        Preference and likelihood are weighed for the whole batch, so they grow by how much smaller
        the part is; the policy loss is scaled anew.
        """
        bounds = group_offsets(self.groups).tolist()
        rows = torch.tensor([r for b in chosen for r in range(bounds[b], bounds[b + 1])])
        index = self._tokens(rows.tolist())
        larger = len(self.groups) / len(chosen)
        asked = self.objective
        likelihood = _at(asked.likelihood, rows)
        preference = asked.preference
        if preference is not None:
            preference = replace(preference, pairs=self._pairs(rows, larger))
        objective = replace(
            asked,
            # the part may have as many tokens as members: two axes say that these are by token
            advantages=self.advantages[index][None],
            weight=_at(asked.weight, index),
            mask=_at(asked.mask, index),
            group_weight=_at(asked.group_weight, torch.tensor(chosen)),
            preference=preference,
            likelihood=None if likelihood is None else likelihood * larger,
        )
        part = Batch.of([self.groups[b] for b in chosen], objective, settings)
        return replace(part, old=_at(self.old, index), ref=_at(self.ref, index))

    def micro_batches(self, token_budget: int, *, keep_all: bool) -> list[MicroBatch]:
        """This rank's groups with the members that are needed, cut at `token_budget` packed tokens.

        A group is never split. Members that neither preference nor likelihood needs are left out
        where they are not scored and, without `keep_all`, where their advantage is 0.
        """
        firsts = group_offsets(self.groups).tolist()
        own = [
            (group, first)
            for group, first in zip(self.groups, firsts, strict=False)
            if ranks.size() == 1 or group.rank == ranks.rank()
        ]
        sizes = [group_size(group) for group, _ in own]
        micros = (
            self._micro_batch(chunk, keep_all=keep_all)
            for chunk in within_budget(own, sizes, token_budget)
        )
        return [micro for micro in micros if micro.rows]

    def _micro_batch(self, chunk: list[tuple[Group, int]], *, keep_all: bool) -> MicroBatch:
        kept: list[Group] = []
        rows: list[int] = []
        for group, first in chunk:
            needed = [
                k
                for k in range(len(group.members))
                if (keep_all and group.members[k].scored)
                or bool(self.has_gradient[self._tokens([first + k])].any())
            ]
            if needed:
                kept.append(replace(group, members=tuple(group.members[k] for k in needed)))
                rows.extend(first + k for k in needed)
        index, chosen = self._tokens(rows), torch.tensor(rows, dtype=torch.int64)
        pairs = None if self.objective.preference is None else self._pairs(chosen)
        if pairs is not None and not len(pairs.weight):
            pairs = None
        return MicroBatch(
            kept,
            rows,
            index,
            self.advantages[index],
            self.scale[chosen],
            _at(self.objective.weight, index),
            _at(self.mask, index),
            pairs,
            _at(self.objective.likelihood, chosen),
            _at(self.old, index),
            _at(self.ref, index),
        )

    @cached_property
    def _bounds(self) -> list[int]:
        return self.offsets.tolist()

    def _tokens(self, rows: list[int]) -> Tensor:
        spans = [torch.arange(self._bounds[row], self._bounds[row + 1]) for row in rows]
        return torch.cat([torch.zeros(0, dtype=torch.int64), *spans])

    def _pairs(self, rows: Tensor, larger: float = 1.0) -> PreferencePairs:
        """The pairs of weight among `rows`, by their place there, `larger` times as heavy."""
        assert self.objective.preference is not None
        pairs = self.objective.preference.pairs
        place = torch.full((len(self.scored),), -1)
        place[rows] = torch.arange(len(rows))
        ends = torch.stack([place[pairs.positive], place[pairs.negative]])
        outside = ends < 0
        if bool(((pairs.weight != 0) & (outside[0] != outside[1])).any()):
            raise UserError("a preference pair names members of two groups; keep it within one")
        inside = (pairs.weight != 0) & ~outside[0]
        positive, negative = ends[:, inside]
        return PreferencePairs(positive, negative, pairs.weight[inside] * larger)


def _at(values: Tensor | None, where: Tensor) -> Tensor | None:
    return None if values is None else values[where]


def _is_per_token(advantages: Tensor, members: int, tokens: int) -> bool:
    """Tell [N] or [1, N] from [S] or [S, 1]; one axis of S is one per member, whatever N is."""
    shape = tuple(advantages.shape)
    if shape in ((members,), (members, 1)):
        return False
    if shape in ((tokens,), (1, tokens)):
        return True
    seen = len(advantages) if len(shape) == 1 else f"{shape}"
    raise UserError(
        f"the algorithm gave {seen} advantages; wanted {members}, one per member, or {tokens}, "
        "one per token"
    )


def _check(name: str, given: Tensor | None, wanted: int, each: str) -> None:
    if given is not None and given.shape != (wanted,):
        raise UserError(
            f"the algorithm gave {name} of shape {tuple(given.shape)}; wanted ({wanted},), "
            f"one per {each}"
        )


def _scale(scored: Tensor, offsets: Tensor, mask: Tensor | None, settings: RlSettings) -> Tensor:
    """[S] scale of each member's tokens among those with a reward; 0 for the others."""
    lengths = offsets.diff()
    of_scored = torch.cat([lengths.new_zeros(1), lengths[scored].cumsum(0)])
    if mask is not None:
        mask = mask[scored.repeat_interleave(lengths)]
    total = int(of_scored[-1]) if mask is None else int(mask.sum())
    scale = loss_scale(
        settings.aggregation,
        of_scored,
        max_length=settings.max_new_tokens if settings.aggregation == "dr_grpo" else None,
        total_tokens=max(1, total) if settings.aggregation == "dapo" else None,
        mask=mask,
    )
    return scale.new_zeros(len(scored)).masked_scatter(scored, scale)


def summed_counts(counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Add up the counts of parts; a name that a part lacks counts 0 there."""
    total: dict[str, float] = {}
    for part in counts:
        for name, value in part.items():
            total[name] = total.get(name, 0.0) + value
    return total


def joined(
    parts: Sequence[Batch],
    order: Callable[[list[list[Any]]], list[Any]] = lambda lists: list(itertools.chain(*lists)),
) -> Batch:
    """Make one batch of the groups of several, which have rewards and no objective yet.

    order: joins lists of the parts, an entry a group; one part after the other by default. A part
    without groups has no scores.
    """
    busy = [part for part in parts if part.groups]
    terms = dict.fromkeys(name for part in busy for name in part.notes)

    def by_prompt(values: list[Any]) -> list[Any]:
        return order([by_group(part, own) for part, own in zip(busy, values, strict=True)])

    return Batch(
        order([part.groups for part in parts]),
        order([part.sampled for part in parts]),
        summed_counts([part.counts for part in parts]),
        {
            name: np.concatenate(by_prompt([part.scores[name] for part in busy]))
            for name in busy[0].scores
        },
        {
            name: list(itertools.chain(*by_prompt([part.notes.get(name) for part in busy])))
            for name in terms
        },
        parts[0].compared,
    )


def by_group(part: Batch, values: Any) -> list[Any]:
    """Cut values of the scored members by group; empty mappings where there are none."""
    scored = part.scored.tolist()
    if values is None or not len(values):
        values = [{}] * sum(scored)
    sizes = [sum(scored[a:b]) for a, b in itertools.pairwise(group_offsets(part.groups).tolist())]
    ends = list(itertools.accumulate(sizes))
    return [values[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _owned(groups: list[Group]) -> list[Group]:
    return [replace(group, rank=ranks.rank()) for group in groups]


def _without_pixels(groups: list[Group]) -> list[Group]:
    return [replace(g, prompt=g.prompt.with_pixels(None)) for g in groups]
