"""Dispatcher of the edit plan. Integers leave it, so there is no gradient to register."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern.checks import check_offsets
from rrgkern.edit_plan.reference import edit_plan_reference
from rrgkern.edit_plan.types import SentenceEntities
from rrgkern.entity_match.checks import check_range, check_unit_rows

Script = tuple[Tensor, Tensor, Tensor, Tensor]


def check_entities(name: str, z: SentenceEntities) -> None:
    """Raise ValueError where the values of `z` break the promises of `SentenceEntities`."""
    check_offsets(f"{name}.sentence_offsets", z.sentence_offsets, len(z.sentence_key), "sentences")
    check_offsets(f"{name}.entity_offsets", z.entity_offsets, len(z.presence), "entities")
    check_range(f"{name}.presence", z.presence, -1, 1)
    counts = z.entity_offsets.diff()
    last = (z.sentence_offsets.diff() - 1).repeat_interleave(counts, output_size=len(z.presence))
    check_range(f"{name}.entity_sentence (counted in its report)", z.entity_sentence, 0, last)
    check_unit_rows(f"{name}.embedding", z.embedding, z.presence >= 0)


@torch.library.custom_op("rrgkern::edit_plan", mutates_args=())
def edit_plan_op(
    x_sentence_offsets: Tensor,
    x_sentence_key: Tensor,
    x_entity_offsets: Tensor,
    x_entity_sentence: Tensor,
    x_presence: Tensor,
    x_key: Tensor,
    x_embedding: Tensor,
    y_sentence_offsets: Tensor,
    y_sentence_key: Tensor,
    y_entity_offsets: Tensor,
    y_entity_sentence: Tensor,
    y_presence: Tensor,
    y_key: Tensor,
    y_embedding: Tensor,
    seeds: Tensor,
    tau: float,
    tau_replace: float,
    max_edits: int,
    width: int,
    conflict_requires_spurious: bool,
) -> Script:
    """(rule [R, width] int8, sentence and reference [R, width] int32, count [R] int32)."""
    x = SentenceEntities(
        x_sentence_offsets,
        x_sentence_key,
        x_entity_offsets,
        x_entity_sentence,
        x_presence,
        x_key,
        x_embedding,
    )
    y = SentenceEntities(
        y_sentence_offsets,
        y_sentence_key,
        y_entity_offsets,
        y_entity_sentence,
        y_presence,
        y_key,
        y_embedding,
    )
    check_entities("x", x)
    check_entities("y", y)
    return edit_plan_reference(
        x, y, seeds, tau, tau_replace, max_edits, width, conflict_requires_spurious
    )


@edit_plan_op.register_fake
def _(*inputs: Any) -> Script:
    seeds, width = inputs[14], inputs[18]
    shape = (seeds.shape[0], width)
    return (
        seeds.new_empty(shape, dtype=torch.int8),
        seeds.new_empty(shape, dtype=torch.int32),
        seeds.new_empty(shape, dtype=torch.int32),
        seeds.new_empty(shape[:1], dtype=torch.int32),
    )
