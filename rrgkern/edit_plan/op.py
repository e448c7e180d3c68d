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
from rrgkern.entity_match.checks import check_range, check_unit_rows, check_weights

Script = tuple[Tensor, Tensor, Tensor, Tensor]


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


def _prepared(inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], Script]:
    """The arguments that both twins take, checked, and the script they fill in."""
    *entities, seeds = (tensor.contiguous() for tensor in inputs[:15])
    tau, tau_replace, max_edits, width, conflict_requires_spurious = inputs[15:]
    x, y = SentenceEntities(*entities[:7]), SentenceEntities(*entities[7:])
    check_entities("x", x, x.presence >= 0)
    check_entities("y", y, y.presence >= 0)
    options = (tau, tau_replace, max_edits, conflict_requires_spurious)
    return (*entities, seeds, *options), blank_script(seeds, width)


def _launch_cpu(*inputs: Any) -> Script:
    arguments, script = _prepared(inputs)
    csrc.load().edit_plan_cpu(*arguments, *script, torch.get_num_threads())
    return script


def _launch_cuda(*inputs: Any) -> Script:
    arguments, script = _prepared(inputs)
    arguments, needed, slabs = _placed(arguments, 7, released=False)
    csrc.load().edit_plan_cuda(*arguments, needed, slabs, *script)
    return script


def _placed(
    arguments: tuple[Any, ...], per_report: int, *, released: bool
) -> tuple[tuple[Any, ...], int, Tensor]:
    """The arguments with all offsets on the device, the bytes that the largest pair needs, and the
    slabs of the blocks where that does not fit into shared memory.

    The sizes of the reports are the one thing that the host asks for: it waits for the device
    unless the offsets are on the host.
    """
    device = arguments[4].device
    places = (0, per_report, 2, per_report + 2)  # sentence offsets of x and y, entity offsets
    needed = csrc.load().edit_plan_space(*(arguments[k].cpu() for k in places), released)
    moved = list(arguments)
    for k in places:
        moved[k] = arguments[k].to(device, non_blocking=True)
    reports = len(arguments[0]) - 1
    blocks = min(reports, max(1, _SLABS // needed)) if needed > _SHARED_MEMORY else 0
    slabs = torch.empty(blocks * needed, dtype=torch.uint8, device=device)
    return tuple(moved), needed, slabs


# What a block of any GPU has without asking, and the most to take from the memory of all.
_SHARED_MEMORY, _SLABS = 48 << 10, 256 << 20

register_csrc(edit_plan_op, _launch_cpu, ("cpu",), "edit_plan")
register_csrc(edit_plan_op, _launch_cuda, ("cuda",), "edit_plan")


@edit_plan_op.register_fake
def _(*inputs: Any) -> Script:
    return empty_script(inputs[14], inputs[18])


def blank_script(seeds: Tensor, width: int) -> Script:
    """A script without edits; the counts are to be filled in."""
    shape = (len(seeds), width)
    return (
        seeds.new_zeros(shape, dtype=torch.int8),
        seeds.new_full(shape, -1, dtype=torch.int32),
        seeds.new_full(shape, -1, dtype=torch.int32),
        seeds.new_empty(shape[:1], dtype=torch.int32),
    )


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
    """The script of the published code, one edit a report."""
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
    check_released(x, y, affinity)
    return released_reference(x, y, seeds, affinity, tau, tau_replace, neg_weight)


def check_released(x: SentenceEntities, y: SentenceEntities, affinity: Tensor) -> None:
    """Raise ValueError where an input breaks a promise; every entity takes part."""
    check_weights("affinity", affinity)
    for name, z in (("x", x), ("y", y)):
        check_entities(name, z, torch.ones_like(z.presence, dtype=torch.bool))
        check_range(f"{name}.kind", z.kinds(), 0, len(affinity) - 1)


def _prepared_released(inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], Script]:
    *tensors, affinity = (tensor.contiguous() for tensor in inputs[:18])
    check_released(SentenceEntities(*tensors[:8]), SentenceEntities(*tensors[8:16]), affinity)
    return (*tensors, affinity, *inputs[18:]), blank_script(tensors[16], 1)


def _launch_released_cpu(*inputs: Any) -> Script:
    arguments, script = _prepared_released(inputs)
    csrc.load().edit_plan_released_cpu(*arguments, *script, torch.get_num_threads())
    return script


def _launch_released_cuda(*inputs: Any) -> Script:
    arguments, script = _prepared_released(inputs)
    arguments, needed, slabs = _placed(arguments, 8, released=True)
    csrc.load().edit_plan_released_cuda(*arguments, needed, slabs, *script)
    return script


register_csrc(edit_plan_released_op, _launch_released_cpu, ("cpu",), "edit_plan")
register_csrc(edit_plan_released_op, _launch_released_cuda, ("cuda",), "edit_plan")


@edit_plan_released_op.register_fake
def _(*inputs: Any) -> Script:
    return empty_script(inputs[16], 1)
