"""Count launches and bytes of whole calls at real sizes, as CUDA would get them."""

from __future__ import annotations

import functools
import json

import pytest

from rrgkern.logps.triton_tile import TILES
from rrgkern.policy_loss.linear.triton_kernels import PLAN
from tests.rrgkern.aot.harness import in_compiling_process

pytest.importorskip("triton")
pytestmark = pytest.mark.slow

VOCABULARY, WIDTH, ITEM = 151936, 2048, 2
# Most launches by mode and rows. With 38 slices whatever the rows, they were 303, 1710, 456 at
# 8192 rows and 152, 190, 228 at 500.
MOST = {
    ("frozen_head", 8192): 610,
    ("grad_in_forward", 8192): 400,
    ("recompute", 8192): 912,
    ("frozen_head", 960): 76,
    ("grad_in_forward", 960): 50,
    ("recompute", 960): 114,
    ("frozen_head", 500): 40,
    ("grad_in_forward", 500): 40,
    ("recompute", 500): 60,
}


@functools.cache
def counted() -> dict[tuple[str, int], tuple[int, int]]:
    """Launches and peak bytes by mode and rows."""
    rows = sorted({str(n) for _, n in MOST})
    printed = in_compiling_process("-m", "tests.rrgkern.policy_loss.linear.whole_calls", *rows)
    lines = [json.loads(line) for line in printed.splitlines()]
    return {(mode, n): (launches, peak) for mode, n, launches, peak in lines}


def formula(mode: str, rows: int) -> int:
    """Peak bytes by the README's formula."""
    tiling = TILES.tiling.for_rows(rows)
    tile, columns = min(tiling.elements, rows * VOCABULARY), tiling.columns
    sums, head = (4 + ITEM) * rows * WIDTH + (4 + ITEM) * tile, WIDTH * VOCABULARY
    if mode == "frozen_head":
        return sums
    if mode == "recompute":
        return sums + 4 * columns * WIDTH + ITEM * head
    held = PLAN.held_rows(rows, VOCABULARY)
    # In 16 bits a slice of the held logits is twice as large.
    columns = TILES.tiling._replace(elements=2 * TILES.tiling.elements).for_rows(held).columns
    block = 4 * held * VOCABULARY + ITEM * held * columns
    return ITEM * rows * WIDTH + 4 * head + max(block, ITEM * head) + 4 * held * WIDTH


@pytest.mark.parametrize(("mode", "rows"), MOST)
def test_launches(mode: str, rows: int) -> None:
    assert counted()[mode, rows][0] <= MOST[mode, rows]


@pytest.mark.parametrize(("mode", "rows"), MOST)
def test_peak_memory_is_the_formula(mode: str, rows: int) -> None:
    peak, allowed = counted()[mode, rows][1], formula(mode, rows)
    assert peak <= 1.01 * allowed + (1 << 20), f"{peak} bytes at once, the formula says {allowed}"
    assert peak >= 0.75 * allowed
