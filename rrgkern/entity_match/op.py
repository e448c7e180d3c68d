"""Dispatcher of the entity match: csrc/entity_match on CPU and CUDA. No gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.checks import check_offsets
from rrgkern.dispatch import register_csrc
from rrgkern.entity_match.checks import check_range, check_unit_rows
from rrgkern.entity_match.reference import entity_match_reference
from rrgkern.entity_match.types import ReportEntities


def check_entities(name: str, z: ReportEntities, kinds: int) -> None:
    """Raise ValueError where the values of `z` break the promises of `ReportEntities`."""
    check_offsets(f"{name}.offsets", z.offsets, len(z.presence), "entities")
    check_range(f"{name}.presence", z.presence, -1, 1)
    check_range(f"{name}.kind", z.kinds(), 0, kinds - 1)
    check_unit_rows(f"{name}.embedding", z.embedding)


@torch.library.custom_op("rrgkern::entity_match", mutates_args=())
def entity_match_op(
    x_offsets: Tensor,
    x_presence: Tensor,
    x_embedding: Tensor,
    x_kind: Tensor,
    y_offsets: Tensor,
    y_presence: Tensor,
    y_embedding: Tensor,
    y_kind: Tensor,
    weight: Tensor,
    crossed: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(cosine_x, index_x [Ex, 3], cosine_y, index_y [Ey, 3], scores [R, 3])."""
    x = ReportEntities(x_offsets, x_presence, x_embedding, x_kind)
    y = ReportEntities(y_offsets, y_presence, y_embedding, y_kind)
    check_entities("x", x, len(weight))
    check_entities("y", y, len(weight))
    return entity_match_reference(x, y, weight, crossed)


def _launch(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    *entities, weight, crossed = (tensor.contiguous() for tensor in inputs)
    x, y = ReportEntities(*entities[:4]), ReportEntities(*entities[4:])
    check_entities("x", x, len(weight))
    check_entities("y", y, len(weight))
    results = empty_results(x.offsets, x.presence, y.presence)
    entry = getattr(csrc.load(), f"entity_match_{weight.device.type}")
    entry(*x, *y, weight, crossed, *results)
    return results


register_csrc(entity_match_op, _launch, ("cpu", "cuda"), "entity_match")


@entity_match_op.register_fake
def _(
    x_offsets: Tensor,
    x_presence: Tensor,
    x_embedding: Tensor,
    x_kind: Tensor,
    y_offsets: Tensor,
    y_presence: Tensor,
    y_embedding: Tensor,
    y_kind: Tensor,
    weight: Tensor,
    crossed: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return empty_results(x_offsets, x_presence, y_presence)


def empty_results(
    x_offsets: Tensor, x_presence: Tensor, y_presence: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What the op returns, not yet filled."""
    x_shape, y_shape = (x_presence.shape[0], 3), (y_presence.shape[0], 3)
    return (
        x_presence.new_empty(x_shape, dtype=torch.float32),
        x_presence.new_empty(x_shape, dtype=torch.int32),
        x_presence.new_empty(y_shape, dtype=torch.float32),
        x_presence.new_empty(y_shape, dtype=torch.int32),
        x_presence.new_empty((x_offsets.shape[0] - 1, 3), dtype=torch.float32),
    )
