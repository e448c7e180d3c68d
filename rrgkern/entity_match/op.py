"""Dispatcher of the entity match: csrc/entity_match on CPU and CUDA. No gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.checks import check_offsets
from rrgkern.dispatch import register_csrc
from rrgkern.entity_match.checks import (
    UNIT_TOLERANCE,
    check_range,
    check_unit_rows,
    check_weights,
)
from rrgkern.entity_match.reference import entity_match_reference
from rrgkern.entity_match.types import ReportEntities

Results = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def check_entities(name: str, z: ReportEntities, kinds: int) -> None:
    """Raise ValueError where the integers of `z` break the promises of `ReportEntities`."""
    check_offsets(f"{name}.offsets", z.offsets, len(z.presence), "entities")
    check_range(f"{name}.presence", z.presence, -1, 1)
    check_range(f"{name}.kind", z.kinds(), 0, kinds - 1)


def check_embeddings(x: ReportEntities, y: ReportEntities) -> None:
    """Raise ValueError where an embedding is no unit vector."""
    check_unit_rows("x.embedding", x.embedding)
    check_unit_rows("y.embedding", y.embedding)


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
    check_inputs(x, y, weight, crossed)
    return entity_match_reference(x, y, weight, crossed)


def check_inputs(x: ReportEntities, y: ReportEntities, weight: Tensor, crossed: Tensor) -> None:
    """Raise ValueError where an input breaks a promise, and name it."""
    check_entities("x", x, len(weight))
    check_entities("y", y, len(weight))
    check_weights("affinity", weight)
    check_weights("affinity * neg_weight", crossed)
    check_embeddings(x, y)


def _prepared(inputs: tuple[Tensor, ...]) -> tuple[tuple[Any, ...], Results]:
    *entities, weight, crossed = (tensor.contiguous() for tensor in inputs)
    x, y = ReportEntities(*entities[:4]), ReportEntities(*entities[4:])
    return (x, y, weight, crossed), empty_results(x.offsets, x.presence, y.presence)


def _launch_cpu(*inputs: Tensor) -> Results:
    arguments, results = _prepared(inputs)
    x, y, *tables = arguments
    # The kernel looks at every input as it reads it; they are read again only to name a wrong one.
    threads = torch.get_num_threads()
    if not csrc.load().entity_match_cpu(*x, *y, *tables, *results, threads, -1):
        check_inputs(*arguments)
        # The lengths are summed in another order there, and differ in the last bits.
        raise ValueError(
            f"the length of an embedding is 1 ± {UNIT_TOLERANCE} only as it is rounded: divide "
            "each row by its length"
        )
    return results


def _launch_cuda(*inputs: Tensor) -> Results:
    arguments, results = _prepared(inputs)
    check_inputs(*arguments)
    x, y, *tables = arguments
    csrc.load().entity_match_cuda(*x, *y, *tables, *results)
    return results


register_csrc(entity_match_op, _launch_cpu, ("cpu",), "entity_match")
register_csrc(entity_match_op, _launch_cuda, ("cuda",), "entity_match")


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
) -> Results:
    return empty_results(x_offsets, x_presence, y_presence)


def empty_results(x_offsets: Tensor, x_presence: Tensor, y_presence: Tensor) -> Results:
    """What the op returns, not yet filled."""
    x_shape, y_shape = (x_presence.shape[0], 3), (y_presence.shape[0], 3)
    return (
        x_presence.new_empty(x_shape, dtype=torch.float32),
        x_presence.new_empty(x_shape, dtype=torch.int32),
        x_presence.new_empty(y_shape, dtype=torch.float32),
        x_presence.new_empty(y_shape, dtype=torch.int32),
        x_presence.new_empty((x_offsets.shape[0] - 1, 3), dtype=torch.float32),
    )
