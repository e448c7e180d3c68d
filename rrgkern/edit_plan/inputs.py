"""Arguments of the edit plan's two ops, and the checks on their values."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.checks import check_offsets, check_range, check_unit_rows, check_weights
from rrgkern.edit_plan.types import SentenceEntities


class XRows(NamedTuple):
    """The reports as written: the fields of `SentenceEntities` without the kind."""

    x_sentence_offsets: Tensor
    x_sentence_key: Tensor
    x_entity_offsets: Tensor
    x_entity_sentence: Tensor
    x_presence: Tensor
    x_key: Tensor
    x_embedding: Tensor


class YRows(NamedTuple):
    """The references, likewise."""

    y_sentence_offsets: Tensor
    y_sentence_key: Tensor
    y_entity_offsets: Tensor
    y_entity_sentence: Tensor
    y_presence: Tensor
    y_key: Tensor
    y_embedding: Tensor


class EditOptions(NamedTuple):
    """Thresholds and limits of the paper's rules.

    Attributes:
        tau, tau_replace: as in `edit_plan`.
        max_edits: edits per report; 0 goes on to the fixed point.
        width: M, the edits that a row of the script has room for.
        conflict_requires_spurious: as in `edit_plan`.
    """

    tau: float
    tau_replace: float
    max_edits: int
    width: int
    conflict_requires_spurious: bool


class EditPlanInputs(NamedTuple):
    """Arguments of `rrgkern::edit_plan`."""

    x_rows: XRows
    y_rows: YRows
    seeds: Tensor
    options: EditOptions

    @property
    def x(self) -> SentenceEntities:
        return SentenceEntities(*self.x_rows)

    @property
    def y(self) -> SentenceEntities:
        return SentenceEntities(*self.y_rows)

    def check(self) -> None:
        """Raise ValueError where the values of a side break a promise."""
        check_entities("x", self.x, self.x.presence >= 0)
        check_entities("y", self.y, self.y.presence >= 0)


class ReleasedOptions(NamedTuple):
    """Affinities [K, K] fp64 of the kinds, and the thresholds of the published code."""

    affinity: Tensor
    tau: float
    tau_replace: float
    neg_weight: float


class ReleasedInputs(NamedTuple):
    """Arguments of `rrgkern::edit_plan_released`."""

    x_rows: XRows
    x_kind: Tensor
    y_rows: YRows
    y_kind: Tensor
    seeds: Tensor
    options: ReleasedOptions

    @property
    def x(self) -> SentenceEntities:
        return SentenceEntities(*self.x_rows, kind=self.x_kind)

    @property
    def y(self) -> SentenceEntities:
        return SentenceEntities(*self.y_rows, kind=self.y_kind)

    def check(self) -> None:
        """Raise ValueError where an input breaks a promise; every entity takes part."""
        affinity = self.options.affinity
        check_weights("affinity", affinity)
        for name, z in (("x", self.x), ("y", self.y)):
            check_entities(name, z, torch.ones_like(z.presence, dtype=torch.bool))
            check_range(f"{name}.kind", z.kinds(), 0, len(affinity) - 1)


def check_entities(name: str, z: SentenceEntities, used: Tensor) -> None:
    """Raise ValueError where the values of `z` break the promises of `SentenceEntities`.

    `used` [E] says of which entities the embedding is read.
    """
    check_offsets(f"{name}.sentence_offsets", z.sentence_offsets, len(z.sentence_key), "sentences")
    check_offsets(f"{name}.entity_offsets", z.entity_offsets, len(z.presence), "entities")
    check_range(f"{name}.presence", z.presence, -1, 1)
    counts, sentences = (
        offsets.to(z.presence.device).diff() for offsets in (z.entity_offsets, z.sentence_offsets)
    )
    last = (sentences - 1).repeat_interleave(counts, output_size=len(z.presence))
    check_range(f"{name}.entity_sentence (counted in its report)", z.entity_sentence, 0, last)
    check_unit_rows(f"{name}.embedding", z.embedding, used)
