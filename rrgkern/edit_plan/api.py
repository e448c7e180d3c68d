"""Edit a report toward its reference: the public function."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rrgkern.checks import (
    check_device,
    check_flags,
    check_layout,
    check_number,
    check_record,
    check_tensors,
)
from rrgkern.edit_plan.inputs import EditOptions, ReleasedOptions
from rrgkern.edit_plan.op import edit_plan_op, edit_plan_released_op
from rrgkern.edit_plan.types import EditScript, SentenceEntities

# A unit row may be 1 % off in length, and an entity must be within tau of itself.
LARGEST_TAU = 0.97


def edit_plan(  # noqa: PLR0913
    x: SentenceEntities,
    y: SentenceEntities,
    *,
    seeds: Tensor,
    tau: float = 0.6,
    tau_replace: float | None = None,
    max_edits: int | None = 1,
    rule: str = "paper",
    conflict_requires_spurious: bool = True,
    affinity: Tensor | None = None,
    neg_weight: float = 0.3612,
) -> EditScript:
    """Plan the edits that move each report of `x` toward its reference in `y` (EditGRPO).

    Per edit the first rule that fits: (a) replace a sentence that a reference sentence
    contradicts, (b) replace one with a spurious entity by a reference sentence about the same
    thing, (c) delete one with a spurious entity, (d) append a reference sentence with a missing
    entity, (e) leave the report, or fill it when it is empty. The room's README has the
    definitions. Nothing is differentiable.

    A plan depends on its own pair and its own seed alone: batch size and order change nothing.

    On a GPU the offsets of both sides may stay on the host: then nothing waits for the device.

    Args:
        x: R reports as written.
        y: R references, pair by pair; equal sentence keys mean equal text (`sentence_body`).
        seeds: [R] int64, one Philox key per pair, see `philox_seed`.
        tau: two entities are the same where their cosine > tau; below 0.97.
        tau_replace: rule (b) replaces where the mean best cosine >= tau_replace; tau by default.
        max_edits: edits per report, at least 1. None goes on to the fixed point, where nothing is
            spurious and nothing missing if y holds an entity; it reads the report lengths on the
            host. With more than one edit a sentence equal to a reference sentence is never edited.
        rule: "paper", or "released" for the one edit that the published code makes (see
            `released.py`), which edits even a report equal to its reference.
        conflict_requires_spurious: False takes rule (a) by the letter, where an entity that
            another reference sentence supports conflicts too. It edits even a correct report when
            the reference says "small left effusion" and "no right effusion".
        affinity: [K, K] finite weights >= 0 over kinds, the report's kind first; 1 everywhere by
            default. Read by "released" only, which reproduces the published runs with RaTEScore's
            table.
        neg_weight: what "released" multiplies the likeness of opposite findings with.

    Returns:
        EditScript with M = max_edits, or for None the largest |x| + |y| of the batch.

    Raises:
        TypeError: x or y is no SentenceEntities, a field or option has the wrong type or dtype.
        ValueError: shapes or devices disagree, an option is out of range, an embedding that takes
            part is no unit vector, an entity names a sentence outside its report. Values on a GPU
            are checked under RRGKERN_CHECK=1 only.
    """
    check_record("x", x, SentenceEntities)
    check_record("y", y, SentenceEntities)
    check_tensors(seeds=seeds, optional={"affinity": affinity})
    check_flags(conflict_requires_spurious=conflict_requires_spurious)
    if rule not in ("paper", "released"):
        raise ValueError(f"rule is {rule!r}, wanted 'paper' or 'released'")
    if rule == "released" and max_edits != 1:
        raise ValueError(f"max_edits is {max_edits}, wanted 1: rule 'released' makes one edit")
    tau_replace = tau if tau_replace is None else tau_replace
    for option, number in (("tau", tau), ("tau_replace", tau_replace), ("neg_weight", neg_weight)):
        check_number(option, number)
    if not -1 <= tau < LARGEST_TAU:
        raise ValueError(f"tau is {tau}, wanted -1 <= tau < {LARGEST_TAU}")
    if not -1 <= tau_replace <= 1:
        raise ValueError(f"tau_replace is {tau_replace}, wanted -1 <= tau_replace <= 1")
    if max_edits is not None and max_edits < 1:
        raise ValueError(f"max_edits is {max_edits}, wanted at least 1, or None for no limit")
    check_layout("seeds", seeds, (torch.int64,), (-1,), "seeds", seeds)
    x = checked("x", x, seeds)
    y = checked("y", y, seeds)
    if x.embedding.shape[1] != y.embedding.shape[1]:
        raise ValueError(
            f"x.embedding has width {x.embedding.shape[1]} and y.embedding {y.embedding.shape[1]}, "
            "wanted one width: embed both with one model"
        )
    if rule == "released":
        if affinity is None:
            affinity = torch.ones(1, 1, device=seeds.device)
            x, y = x._replace(kind=None), y._replace(kind=None)
        elif x.kind is None or y.kind is None:
            raise ValueError("x.kind or y.kind is None, wanted int8 [E]: affinity weighs kinds")
        elif affinity.ndim != 2 or affinity.shape[0] != affinity.shape[1] or not len(affinity):
            raise ValueError(f"affinity is {list(affinity.shape)}, wanted square [K, K]")
        check_device("affinity", affinity, "seeds", seeds)
        if not math.isfinite(neg_weight):
            raise ValueError(f"neg_weight is {neg_weight}, wanted a finite number")
        x, y = (z._replace(kind=z.kinds()) for z in (x, y))
        released = ReleasedOptions(
            affinity.double(), float(tau), float(tau_replace), float(neg_weight)
        )
        return EditScript(*edit_plan_released_op(*x, *y, seeds, *released))
    width = max_edits
    if width is None:
        lengths = x.sentence_offsets.cpu().diff() + y.sentence_offsets.cpu().diff()
        width = int(lengths.max()) if len(lengths) else 0
    options = EditOptions(
        float(tau), float(tau_replace), max_edits or 0, width, conflict_requires_spurious
    )
    return EditScript(*edit_plan_op(*x[:7], *y[:7], seeds, *options))


def checked(name: str, z: SentenceEntities, seeds: Tensor) -> SentenceEntities:
    """Make sentences int64 and embeddings fp32, or raise what is wrong."""
    reports, sentences, entities = len(seeds) + 1, z.sentence_key.shape[:1], z.presence.shape[:1]
    wanted: tuple[tuple[str, tuple[torch.dtype, ...], Sequence[int]], ...] = (
        ("sentence_offsets", (torch.int64,), (reports,)),
        ("sentence_key", (torch.int64,), sentences),
        ("entity_offsets", (torch.int64,), (reports,)),
        ("entity_sentence", (torch.int32, torch.int64), entities),
        ("presence", (torch.int8,), entities),
        ("key", (torch.int64,), entities),
        ("embedding", (torch.float32, torch.float16, torch.bfloat16), (*entities, -1)),
    )
    if z.kind is not None:
        wanted += (("kind", (torch.int8,), entities),)
    for field, dtypes, shape in wanted:
        tensor = getattr(z, field)
        on_host = field.endswith("offsets") and tensor.is_cpu
        other = tensor if on_host else seeds
        check_layout(f"{name}.{field}", tensor, dtypes, shape, "seeds", other)
    sentence, embedding = z.entity_sentence.long(), z.embedding.detach().float()
    return z._replace(entity_sentence=sentence, embedding=embedding)
