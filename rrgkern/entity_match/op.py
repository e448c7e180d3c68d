"""Dispatcher of the entity match: csrc/entity_match on CPU and CUDA. No gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.checks import UNIT_TOLERANCE
from rrgkern.dispatch import register_csrc
from rrgkern.entity_match.inputs import EntityMatchInputs
from rrgkern.entity_match.reference import entity_match_reference
from rrgkern.ops import custom_op, flatten, pack

Results = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@custom_op("rrgkern::entity_match", EntityMatchInputs)
def entity_match_op(*inputs: Tensor) -> Results:
    """(cosine_x, index_x [Ex, 3], cosine_y, index_y [Ey, 3], scores [R, 3])."""
    match = pack(EntityMatchInputs, inputs)
    match.check()
    return entity_match_reference(match.x, match.y, match.tables)


def _prepared(inputs: Sequence[Tensor]) -> tuple[EntityMatchInputs, Results]:
    match = pack(EntityMatchInputs, [tensor.contiguous() for tensor in inputs])
    return match, empty_results(match.x_offsets, match.x_presence, match.y_presence)


def _launch_cpu(*inputs: Tensor) -> Results:
    match, results = _prepared(inputs)
    # The kernel looks at every input as it reads it; they are read again only to name a wrong one.
    threads = torch.get_num_threads()
    if not csrc.load().entity_match_cpu(*flatten(match), *results, threads, -1):
        match.check()
        # The lengths are summed in another order there, and differ in the last bits.
        raise ValueError(
            f"the length of an embedding is 1 ± {UNIT_TOLERANCE} only as it is rounded: divide "
            "each row by its length"
        )
    return results


def _launch_cuda(*inputs: Tensor) -> Results:
    match, results = _prepared(inputs)
    match.check()
    csrc.load().entity_match_cuda(*flatten(match), *results)
    return results


register_csrc(entity_match_op, _launch_cpu, ("cpu",), "entity_match")
register_csrc(entity_match_op, _launch_cuda, ("cuda",), "entity_match")


@entity_match_op.register_fake
def _(*inputs: Tensor) -> Results:
    match = pack(EntityMatchInputs, inputs)
    return empty_results(match.x_offsets, match.x_presence, match.y_presence)


def empty_results(x_offsets: Tensor, x_presence: Tensor, y_presence: Tensor) -> Results:
    """Allocate what the op returns."""
    reports = x_offsets.shape[0] - 1
    x_shape, y_shape = (x_presence.shape[0], 3), (y_presence.shape[0], 3)
    new_empty = x_presence.new_empty
    return (
        new_empty(x_shape, dtype=torch.float32),
        new_empty(x_shape, dtype=torch.int32),
        new_empty(y_shape, dtype=torch.float32),
        new_empty(y_shape, dtype=torch.int32),
        new_empty((reports, 3), dtype=torch.float32),
    )
