"""Dispatcher of the edit plan: csrc/edit_plan on CPU and CUDA. Integers have no gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.checks import check_offsets
from rrgkern.dispatch import register_csrc
from rrgkern.edit_plan.reference import edit_plan_reference
from rrgkern.edit_plan.released import released_reference
from rrgkern.edit_plan.types import SentenceEntities
from rrgkern.entity_match.checks import check_range, check_unit_rows

Script = tuple[Tensor, Tensor, Tensor, Tensor]


def check_entities(name: str, z: SentenceEntities, used: Tensor) -> None:
    """Raise ValueError where the values of `z` break the promises of `SentenceEntities`.

    `used` [E] says of which entities the embedding is read.
    """
    check_offsets(f"{name}.sentence_offsets", z.sentence_offsets, len(z.sentence_key), "sentences")
    check_offsets(f"{name}.entity_offsets", z.entity_offsets, len(z.presence), "entities")
    check_range(f"{name}.presence", z.presence, -1, 1)
    counts = z.entity_offsets.diff()
    last = (z.sentence_offsets.diff() - 1).repeat_interleave(counts, output_size=len(z.presence))
    check_range(f"{name}.entity_sentence (counted in its report)", z.entity_sentence, 0, last)
    check_unit_rows(f"{name}.embedding", z.embedding, used)


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
    check_entities("x", x, x.presence >= 0)
    check_entities("y", y, y.presence >= 0)
    return edit_plan_reference(
        x, y, seeds, tau, tau_replace, max_edits, width, conflict_requires_spurious
    )


def _launch(*inputs: Any) -> Script:
    *entities, seeds = (tensor.contiguous() for tensor in inputs[:15])
    tau, tau_replace, max_edits, width, conflict_requires_spurious = inputs[15:]
    x, y = SentenceEntities(*entities[:7]), SentenceEntities(*entities[7:])
    check_entities("x", x, x.presence >= 0)
    check_entities("y", y, y.presence >= 0)
    sentences = len(x.sentence_key) + len(y.sentence_key)
    pairs = (x.entity_offsets.diff() + y.entity_offsets.diff()).square()
    cosine_offsets = torch.nn.functional.pad(pairs.cumsum(0), (1, 0))
    script = (
        seeds.new_zeros((len(seeds), width), dtype=torch.int8),
        seeds.new_full((len(seeds), width), -1, dtype=torch.int32),
        seeds.new_full((len(seeds), width), -1, dtype=torch.int32),
        seeds.new_empty(len(seeds), dtype=torch.int32),
    )
    entry = getattr(csrc.load(), f"edit_plan_{seeds.device.type}")
    entry(
        *x[:7],
        *y[:7],
        seeds,
        tau,
        tau_replace,
        max_edits,
        conflict_requires_spurious,
        cosine_offsets,
        # The size of the workspace is the one value that the host waits for.
        seeds.new_empty(int(cosine_offsets[-1]), dtype=torch.float32),
        seeds.new_empty(3 * sentences, dtype=torch.int32),
        seeds.new_empty(2 * (len(x.presence) + len(y.presence)), dtype=torch.int8),
        *script,
    )
    return script


register_csrc(edit_plan_op, _launch, ("cpu", "cuda"), "edit_plan")


@edit_plan_op.register_fake
def _(*inputs: Any) -> Script:
    return empty_script(inputs[14], inputs[18])


def empty_script(seeds: Tensor, width: int) -> Script:
    """What the ops return, not yet filled."""
    shape = (seeds.shape[0], width)
    return (
        seeds.new_empty(shape, dtype=torch.int8),
        seeds.new_empty(shape, dtype=torch.int32),
        seeds.new_empty(shape, dtype=torch.int32),
        seeds.new_empty(shape[:1], dtype=torch.int32),
    )


@torch.library.custom_op("rrgkern::edit_plan_released", mutates_args=())
def edit_plan_released_op(
    x_sentence_offsets: Tensor,
    x_sentence_key: Tensor,
    x_entity_offsets: Tensor,
    x_entity_sentence: Tensor,
    x_presence: Tensor,
    x_key: Tensor,
    x_embedding: Tensor,
    x_kind: Tensor,
    y_sentence_offsets: Tensor,
    y_sentence_key: Tensor,
    y_entity_offsets: Tensor,
    y_entity_sentence: Tensor,
    y_presence: Tensor,
    y_key: Tensor,
    y_embedding: Tensor,
    y_kind: Tensor,
    seeds: Tensor,
    affinity: Tensor,
    tau: float,
    tau_replace: float,
    neg_weight: float,
) -> Script:
    """The script of the published code, one edit a report; served by the reference everywhere."""
    x = SentenceEntities(
        x_sentence_offsets,
        x_sentence_key,
        x_entity_offsets,
        x_entity_sentence,
        x_presence,
        x_key,
        x_embedding,
        x_kind,
    )
    y = SentenceEntities(
        y_sentence_offsets,
        y_sentence_key,
        y_entity_offsets,
        y_entity_sentence,
        y_presence,
        y_key,
        y_embedding,
        y_kind,
    )
    for name, z in (("x", x), ("y", y)):
        check_entities(name, z, torch.ones_like(z.presence, dtype=torch.bool))
        check_range(f"{name}.kind", z.kinds(), 0, len(affinity) - 1)
    return released_reference(x, y, seeds, affinity, tau, tau_replace, neg_weight)


@edit_plan_released_op.register_fake
def _(*inputs: Any) -> Script:
    return empty_script(inputs[16], 1)
