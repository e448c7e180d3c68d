"""Test the memory of each mode: bytes of all tensors alive, counted at every operation."""

from __future__ import annotations

import pytest
import torch

from rrgkern import PolicyLoss, linear_policy_loss
from rrgkern.logps import op as logps_op
from rrgkern.logps.from_hidden import CSRC_TILES
from rrgkern.logps.head import Tiling
from rrgkern.policy_loss.linear import op
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss.linear.cases import keywords, problem
from tests.rrgkern.policy_loss.linear.conftest import open_up, use_torch
from tests.rrgkern.policy_loss.linear.whole_calls import Alive

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="counts what serves CPUs")

# N·V is 48 times a tile, and everything else is small beside it.
ROWS, WIDTH, VOCABULARY = 96, 16, 4096
TILING = Tiling(columns=512, elements=512 * 16)
HELD_ROWS = 8
TILE = TILING.elements * 4
LOGITS = ROWS * VOCABULARY * 4
HEAD = VOCABULARY * WIDTH
# Per-row numbers, the policy loss's own terms (some 60 fp32 and fp64 arrays), masks, indices.
SMALL = ROWS * 8 * 100


def measured(monkeypatch, mode: str, dtype: torch.dtype, backward: bool = True, **options) -> Alive:
    open_up(monkeypatch)
    tiles = CSRC_TILES._replace(tiling=TILING)
    plan = op.CPU_PLAN._replace(tiles=tiles, held=HELD_ROWS * VOCABULARY)
    monkeypatch.setattr(op, "CPU_PLAN", plan)
    monkeypatch.setattr(logps_op, "TORCH_TILES", tiles)
    monkeypatch.setattr(op.CPU_PLAN.rows, "BLOCK_ELEMENTS", 1024)
    given = problem(
        PolicyLoss(beta=0.1),
        lengths=(40, 56),
        width=WIDTH,
        vocabulary=VOCABULARY,
        given="ref",
        dtype=dtype,
    ).to(dtype)
    called = keywords(given, mode=mode, **options)
    hidden = called["hidden"].requires_grad_()
    weight = called["weight"].requires_grad_(mode != "frozen_head")
    if options.get("accumulate_weight_grad"):
        weight.grad = torch.zeros_like(weight)
    with Alive() as alive:
        loss = linear_policy_loss(**called).loss
        if backward:
            loss.backward()
    assert hidden.grad is not None or not backward
    return alive


def allowance(mode: str, dtype: torch.dtype, into_grad: bool) -> int:
    """The README's formula, with what a CPU adds: tiles in fp32, a slice of W widened."""
    wide = dtype == torch.float32
    one_slice, tiles = TILING.columns * WIDTH * 4, 2 * TILE
    # Sums in fp32, and the 16-bit gradient they are rounded to.
    rows = ROWS * WIDTH * (4 if wide else 6)
    widened = 0 if wide else one_slice
    if mode == "frozen_head":
        return rows + tiles + widened
    if mode == "grad_in_forward":
        held = HELD_ROWS * (VOCABULARY + TILING.columns) * 4
        return rows + HEAD * 4 + (held if wide else max(held + widened, HEAD * 2))
    if into_grad:
        # On a CPU a 16-bit slice += fp32 takes two copies of it.
        return rows + tiles + one_slice + 3 * widened
    return rows + tiles + HEAD * dtype.itemsize + (0 if wide else one_slice + widened)


CASES = [
    ("frozen_head", False),
    ("grad_in_forward", False),
    ("recompute", False),
    ("recompute", True),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("mode", "into_grad"), CASES)
def test_peak_memory_is_the_formula(monkeypatch, mode, into_grad, dtype):
    alive = measured(monkeypatch, mode, dtype, accumulate_weight_grad=into_grad)
    allowed = allowance(mode, dtype, into_grad) + SMALL
    assert alive.peak <= allowed, f"{alive.peak} bytes at once, the formula says {allowed}"
    # And the formula is no gift: what it is made of is really held.
    assert alive.peak >= 0.7 * (allowed - SMALL)
    assert alive.largest <= max(TILE, HEAD * 4, HELD_ROWS * VOCABULARY * 4) < LOGITS / 2


def test_the_gradients_are_handed_over_and_not_copied(monkeypatch):
    # Scaled in place and then stolen by autograd: one [V, H] from the forward to `.grad`.
    use_torch(monkeypatch)
    given = problem(PolicyLoss(beta=0.1), given="ref").to(torch.float32)
    called = keywords(given, mode="grad_in_forward")
    called["hidden"].requires_grad_(), called["weight"].requires_grad_()
    loss = linear_policy_loss(**called).loss
    held = [x.data_ptr() for x in loss.grad_fn.saved_tensors]
    loss.backward()
    assert [called["hidden"].grad.data_ptr(), called["weight"].grad.data_ptr()] == held[:2]
