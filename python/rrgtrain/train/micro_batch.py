"""Hold one forward's inputs and losses; fill the forwards of waiting ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from rrgkern import PreferencePairs
from rrgpolicy.model.prompt import EncodedPrompt
from rrgtrain.algorithms.group import Group, drawn_logps

T = TypeVar("T")


@dataclass(frozen=True)
class MicroBatch:
    """Groups that are computed in one forward: M members with T tokens in a row.

    rows: their places among the S members of the batch; none in a forward that only keeps other
        ranks company. index [T]: their tokens' places among the N of the batch.
    advantages [T]; scale [M]; weight, mask [T] or None; pairs by their place here, or None;
    likelihood [M] or None; old, ref [T] log-probabilities, or None; `old` is NaN where members
    that nobody drew have none.
    """

    groups: list[Group]
    rows: list[int]
    index: Tensor
    advantages: Tensor
    scale: Tensor
    weight: Tensor | None = None
    mask: Tensor | None = None
    pairs: PreferencePairs | None = None
    likelihood: Tensor | None = None
    old: Tensor | None = None
    ref: Tensor | None = None

    @property
    def at_ratio_one(self) -> Tensor | None:
        """[M] bool, members that the policy did not draw; None where they have `old`."""
        if self.old is not None and not bool(self.old.isnan().any()):
            return None
        return torch.tensor([m.origin != "sampled" for g in self.groups for m in g.members])

    @property
    def sampler(self) -> Tensor | None:
        """[T] log-probabilities of another engine, NaN at members that nobody drew; None where
        the policy drew all itself, or nothing is corrected."""
        flat = [m for g in self.groups for m in g.members]
        return drawn_logps(flat) if any(m.corrected for m in flat) else None


def group_size(group: Group) -> int:
    """Tokens of a group in the packed forward, its prompt once."""
    return len(group.prompt.input_ids) + sum(len(m.ids) for m in group.members)


def within_budget(items: Sequence[T], sizes: Sequence[int], budget: int | None) -> list[list[T]]:
    """Yield consecutive items whose sizes add up to at most the budget.

    A larger item stands alone."""
    chunks: list[list[T]] = []
    used = 0
    for item, size in zip(items, sizes, strict=True):
        if not chunks or (budget is not None and used + size > budget):
            chunks.append([])
            used = 0
        chunks[-1].append(item)
        used += size
    return chunks


def idle_micro_batch(groups: Sequence[Group]) -> MicroBatch:
    """One token of a prompt and one of a member, of which no row counts."""
    smallest = [
        replace(
            group,
            prompt=group.prompt.one_token(),
            members=(replace(group.members[0], ids=group.members[0].ids[:1]),),
        )
        for group in groups[:1]
    ]
    nothing = torch.zeros(0, dtype=torch.int64)
    return MicroBatch(smallest, [], nothing, torch.zeros(0), torch.zeros(0))


def with_images(prompts: Iterable[EncodedPrompt]) -> bool:
    """Tell whether the forward of the prompts runs the vision tower."""
    return any(prompt.pixel_values is not None for prompt in prompts)
