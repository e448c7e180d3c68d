"""An objective laid out by token, to be asked for what concerns a part of its batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rrgkern import PreferencePairs, loss_scale
from rrgtrain.algorithms.group import Group, competing, group_offsets, token_offsets
from rrgtrain.algorithms.objective import Objective
from rrgtrain.dist import sharding
from rrgtrain.errors import UserError
from rrgtrain.policy.policy import Policy
from rrgtrain.schema import RlSettings


@dataclass(frozen=True)
class Part:
    """What `Layout` says of the members of one micro-batch, whose T tokens stand in a row.

    index [T]: their places among the N tokens of the batch; advantages [T]; scale [members];
    weight, mask [T] or None; likelihood [members] or None; pairs of the members as they are
    counted here, or None.
    """

    index: Tensor
    advantages: Tensor
    scale: Tensor
    weight: Tensor | None
    mask: Tensor | None
    pairs: PreferencePairs | None
    likelihood: Tensor | None


class Layout:
    """The objective of a whole batch, laid out by token, to be asked for parts of it."""

    def __init__(self, groups: list[Group], objective: Objective, settings: RlSettings) -> None:
        self.objective = objective
        self.offsets = token_offsets(groups)
        self._bounds = self.offsets.tolist()
        count, tokens = len(self._bounds) - 1, self._bounds[-1]
        given = objective.advantages
        if len(given) not in (count, tokens):
            raise UserError(
                f"the algorithm gave {len(given)} advantages; wanted {count}, one per "
                f"member, or {tokens}, one per token"
            )
        self._check("weight", objective.weight, tokens, "token")
        self._check("mask", objective.mask, tokens, "token")
        self._check("group_weight", objective.group_weight, len(groups), "group")
        self._check("likelihood", objective.likelihood, count, "member")

        member = torch.repeat_interleave(torch.arange(count), self.offsets.diff())
        compete = competing(groups)
        self._mask = objective.mask
        if not bool(compete.all()):
            own = compete[member]
            self._mask = own if objective.mask is None else objective.mask & own
        per_token = given if len(given) == tokens else given[member]
        if self._mask is not None:
            per_token = torch.where(self._mask, per_token, 0.0)
        self._advantages = per_token
        self._scale = _scale(compete, self.offsets, objective.mask, settings)
        if objective.group_weight is not None:
            sizes = group_offsets(groups).diff()
            self._scale = self._scale * objective.group_weight.repeat_interleave(sizes)
        self.needed = self._needed(member, count)

    def part(self, rows: list[int]) -> Part:
        """What concerns the members `rows`."""
        spans = [torch.arange(self._bounds[s], self._bounds[s + 1]) for s in rows]
        index = torch.cat([torch.zeros(0, dtype=torch.int64), *spans])
        chosen = torch.tensor(rows, dtype=torch.int64)
        objective = self.objective
        return Part(
            index,
            self._advantages[index],
            self._scale[chosen],
            None if objective.weight is None else objective.weight[index],
            None if self._mask is None else self._mask[index],
            self._pairs(chosen),
            None if objective.likelihood is None else objective.likelihood[chosen],
        )

    def asks_reference(self, part: Part, reference: Policy) -> bool:
        """Whether the preference needs the reference's log-probabilities for `part`; where its
        weights are sharded, the ranks compute them all or none."""
        if part.pairs is not None:
            return True
        return self.objective.preference is not None and sharding.is_sharded(reference)

    def _needed(self, member: Tensor, count: int) -> Tensor:
        """[N], not 0 at the tokens of members that carry gradient even without a KL term."""
        extra = torch.zeros(count, dtype=torch.bool)
        if self.objective.preference is not None:
            pairs = self.objective.preference.pairs
            extra[pairs.positive[pairs.weight != 0]] = True
            extra[pairs.negative[pairs.weight != 0]] = True
        if self.objective.likelihood is not None:
            extra |= self.objective.likelihood != 0
        return (self._advantages != 0) | extra[member]

    def _pairs(self, rows: Tensor) -> PreferencePairs | None:
        """The pairs among `rows`, by their place there; None without any."""
        if self.objective.preference is None:
            return None
        pairs = self.objective.preference.pairs
        place = torch.full((len(self._bounds) - 1,), -1)
        place[rows] = torch.arange(len(rows))
        positive, negative = place[pairs.positive], place[pairs.negative]
        active = pairs.weight != 0
        inside = active & (positive >= 0) & (negative >= 0)
        if bool((active & ~inside & ((positive >= 0) | (negative >= 0))).any()):
            raise UserError("a preference pair names members of two groups; keep it within one")
        if not bool(inside.any()):
            return None
        return PreferencePairs(positive[inside], negative[inside], pairs.weight[inside])

    @staticmethod
    def _check(name: str, given: Tensor | None, wanted: int, each: str) -> None:
        if given is not None and given.shape != (wanted,):
            raise UserError(
                f"the algorithm gave {name} of shape {tuple(given.shape)}; wanted ({wanted},), "
                f"one per {each}"
            )


def _scale(compete: Tensor, offsets: Tensor, mask: Tensor | None, settings: RlSettings) -> Tensor:
    """[S] scale of each member's tokens among those that compete; 0 for the others."""
    lengths = offsets.diff()
    own = torch.cat([lengths.new_zeros(1), lengths[compete].cumsum(0)])
    if mask is not None:
        mask = mask[compete.repeat_interleave(lengths)]
    total = int(own[-1]) if mask is None else int(mask.sum())
    scale = loss_scale(
        settings.aggregation,
        own,
        max_length=settings.max_new_tokens if settings.aggregation == "dr_grpo" else None,
        total_tokens=total if settings.aggregation == "dapo" else None,
        mask=mask,
    )
    return scale.new_zeros(len(compete)).masked_scatter(compete, scale)
