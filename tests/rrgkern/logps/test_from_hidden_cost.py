"""Test the cost: no [N, V], no product for rows or operands without a gradient."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from rrgkern.logps.from_hidden import CSRC_TILES
from rrgkern.logps.head import (
    BackwardRows,
    Head,
    NeedsGrad,
    Tiling,
    tiled_backward,
    tiled_forward,
)
from rrgkern.logps.online_softmax import Coefficients
from tests.rrgkern.device import DEVICE
from tests.rrgkern.logps.from_hidden_oracle import problem

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="counts what serves CPUs")

ROWS, WIDTH, VOCABULARY = 60, 16, 900
TILING = Tiling(columns=128, elements=128 * 8)
TILES = CSRC_TILES._replace(tiling=TILING)


class Largest(TorchDispatchMode):
    """Bytes of the largest storage that an operation returned."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.bytes = max(self.bytes, leaf.untyped_storage().nbytes())
        return result


def forward_and_backward(given, wanted=(True, True, False), coef_entropy=True):
    head = Head(given.weight, given.bias, 1.0, 0.0, operands=torch.float32)
    stats = tiled_forward(given.hidden, given.targets, head, True, TILES)
    coefficients = Coefficients(given.coef, given.coef_entropy if coef_entropy else None)
    rows = BackwardRows(given.hidden, given.targets, stats, coefficients)
    with FlopCounterMode(display=False) as flops:
        tiled_backward(rows, head, NeedsGrad(*wanted), TILES)
    return flops.get_total_flops()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_logits_are_never_held(dtype):
    given = problem(ROWS, WIDTH, VOCABULARY, dtype)
    given.coef.fill_(1.0)
    with Largest() as largest:
        forward_and_backward(given)
    weight = given.weight.untyped_storage().nbytes()
    assert TILING.elements * 4 <= largest.bytes <= weight < ROWS * VOCABULARY * 4


def test_an_oversized_row_still_fits_its_slice():
    given = problem(3, WIDTH, VOCABULARY)
    narrow = CSRC_TILES._replace(tiling=Tiling(columns=128, elements=1))
    head = Head(given.weight, None, 1.0, 0.0, operands=torch.float32)
    stats = tiled_forward(given.hidden, given.targets, head, False, narrow)
    assert stats.logps.isfinite().all()


def test_only_rows_with_a_coefficient_are_multiplied():
    given = problem(ROWS, WIDTH, VOCABULARY)
    given.coef.zero_(), given.coef_entropy.zero_()
    given.coef[[3, 30]] = 1.0
    given.coef_entropy[[30, 41, 59]] = -0.5
    product = 2 * WIDTH * VOCABULARY
    assert forward_and_backward(given) == 3 * 4 * product
    assert forward_and_backward(given, coef_entropy=False) == 3 * 2 * product
    given.coef.zero_()
    assert forward_and_backward(given, coef_entropy=False) == 0


def test_a_frozen_operand_costs_no_product():
    given = problem(ROWS, WIDTH, VOCABULARY)
    given.coef.fill_(1.0)
    product = 2 * ROWS * WIDTH * VOCABULARY
    assert forward_and_backward(given, wanted=(True, False, False)) == 2 * product
    assert forward_and_backward(given, wanted=(False, True, False)) == 2 * product
