"""Count launches and bytes of whole calls at real sizes, as CUDA would get them."""

from __future__ import annotations

import functools
import json

import pytest
import torch

from rrgkern.logps.head import Head
from rrgkern.logps.triton_tile import TILES
from rrgkern.policy_loss.linear.triton_kernels import PLAN
from tests.rrgkern.aot.harness import in_compiling_process

pytest.importorskip("triton")
pytestmark = pytest.mark.slow

VOCABULARY, WIDTH, ITEM = 151936, 2048, 2
MODES, ROWS = ("frozen_head", "grad_in_forward", "recompute"), (8192, 960, 500)
# Of a call, forward and backward, products among them, at 8,192 positions unless a name says more.
LAUNCHES = {
    "logps 8k frozen": 31,
    "logps 8k trainable": 36,
    "logps 32k frozen": 120,
    "logps 32k trainable": 140,
    "loss dense grad_in_forward": 62,
    "loss dense recompute": 114,
    "loss domain grad_in_forward": 23,
    "loss domain recompute": 34,
    "logits out of place": 3,
    "logits in place": 3,
    "logits two rooms": 4,
    "logits eager": 0,
}


def test_launches() -> None:
    cases = json.loads(in_compiling_process("-m", "bench.launches", "--json"))
    assert {case: row["launches"] for case, row in cases.items()} == LAUNCHES
    # A head waits once for the rows that have a gradient, by each compaction.
    assert {case: row["waits"] for case, row in cases.items() if row["waits"] != 1} == {
        "loss domain recompute": 2,
        **dict.fromkeys([case for case in LAUNCHES if case.startswith("logits")], 0),
    }
    # Plain tensors of a GPU go to the launchers, and not by the dispatcher, which takes longer.
    assert [cases[f"logits {kind}"]["dispatched"] for kind in ("out of place", "in place")] == [
        0,
        0,
    ]


@functools.cache
def peaks() -> dict[tuple[str, int], int]:
    """Peak bytes by mode and rows."""
    module = "tests.rrgkern.policy_loss.linear.whole_calls"
    lines = in_compiling_process("-m", module, *map(str, ROWS)).splitlines()
    return {(mode, n): peak for mode, n, peak in map(json.loads, lines)}


def formula(mode: str, rows: int) -> int:
    """Peak bytes by the README's formula."""
    head, tile = WIDTH * VOCABULARY, min(TILES.tiling.elements, rows * VOCABULARY)
    sums = (4 + ITEM) * rows * WIDTH + (4 + ITEM) * tile
    if mode == "frozen_head":
        return sums
    if mode == "recompute":
        return sums + ITEM * head
    whole = Head(torch.empty(VOCABULARY, 0, dtype=torch.bfloat16), None, 1.0, 0.0, torch.bfloat16)
    held = PLAN.held_rows(rows, whole)
    block = 4 * held * VOCABULARY + ITEM * min(2 * tile, held * VOCABULARY) + 4 * held * WIDTH
    # The sum of several blocks waits in fp32 and is then rounded.
    gradient = ITEM * head if held == rows else 4 * head
    return ITEM * rows * WIDTH + gradient + max(block, 0 if held == rows else ITEM * head)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("mode", MODES)
def test_peak_memory_is_the_formula(mode: str, rows: int) -> None:
    peak, allowed = peaks()[mode, rows], formula(mode, rows)
    assert peak <= 1.01 * allowed + (1 << 20), f"{peak} bytes at once, the formula says {allowed}"
    assert peak >= 0.75 * allowed
