"""Offsets past 2^31 elements, and launches that must share one compiled kernel.

Tiles and sums lie in allocations whose pages are never touched outside the few rows in use: the
arithmetic is that of a batch of many gigabytes, the memory is not.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from rrgkern.logps import triton_tile
from rrgkern.logps.head import Head, Tile, Tiling
from rrgkern.logps.online_softmax import Coefficients, RowSums
from rrgkern.policy_loss.linear import op, triton_kernels
from rrgkern.policy_loss.linear.gradients import Directions
from tests.rrgkern.device import DEVICE

# On a GPU each takes up to 8 GiB, and a process keeps what it has taken: one of them takes all.
pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton"),
    pytest.mark.xdist_group("gigabytes"),
]

# The kernels of both devices: on a tile of the logits, and on sums over the hidden states.
cpu_tile = op.CPU_PLAN.tiles.kernels
cpu_kernels = op.CPU_PLAN.rows
# Three rows this far apart: the third begins 2^31 elements after the first.
FAR_APART = 2**30
ROWS, WIDTH = 3, 40


def far_apart(values: torch.Tensor) -> torch.Tensor:
    """The same numbers, in rows 2^30 elements apart."""
    width = values.shape[1]
    storage = torch.empty(2 * FAR_APART + width, dtype=values.dtype, device=DEVICE)
    return storage.as_strided(values.shape, (FAR_APART, 1)).copy_(values)


def problem() -> tuple[torch.Tensor, torch.Tensor, slice, Head]:
    torch.manual_seed(0)
    z = torch.randn(ROWS, WIDTH, device=DEVICE)
    targets = torch.tensor([70, 99, 3], device=DEVICE)
    head = Head(torch.randn(200, WIDTH, device=DEVICE), None, 0.7, 0.0, torch.float32)
    return z, targets, slice(64, 64 + WIDTH), head


@pytest.mark.parametrize("step", ["add_to_sums", "exponentials", "tile_gradient"])
def test_tiles_past_two_to_the_31(monkeypatch, step):
    near = Tile(*problem(), torch.empty(ROWS * WIDTH, device=DEVICE))
    z = near.z
    far = near._replace(z=far_apart(z), spare=far_apart(torch.zeros_like(z)))
    monkeypatch.setattr(triton_tile, "tile_of", lambda spare, *_: spare)
    sums = [RowSums.empty(z, ROWS, torch.float32) for _ in range(2)]
    if step == "tile_gradient":
        cpu_tile.add_to_sums(near._replace(z=z.clone(), spare=None), sums[0], True)
        sums[0].target_logit.nan_to_num_(0.3)
        stats = sums[0].close(0.7, True)
        coef = torch.tensor([1.0, -2.0, 0.5], device=DEVICE)
        want = cpu_tile.tile_gradient(near, stats, Coefficients(coef, coef))
        got = triton_tile.tile_gradient(far, stats, Coefficients(coef, coef))
        torch.testing.assert_close(got, want)
        return
    want = getattr(cpu_tile, step)(near, sums[0], True)
    got = getattr(triton_tile, step)(far, sums[1], True)
    if step == "exponentials":
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b)
    for a, b in zip((*sums[1].others, sums[1][1]), (*sums[0].others, sums[0][1]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_sums_and_head_past_two_to_the_31():
    z, targets, columns, head = problem()
    sums = RowSums.empty(z, ROWS, torch.float32)
    cpu_tile.add_to_sums(Tile(z.clone(), targets, columns, head), sums, False)
    sums.target_logit.nan_to_num_(0.3)
    stats = sums.close(0.7, False)
    coef, last = torch.tensor([1.0, 0.0, 0.5], device=DEVICE), torch.tensor([0, 1, 2])
    near = head._replace(weight=head.weight[:ROWS])
    want = torch.empty_like(z)
    targets, found = last.to(DEVICE), Directions(stats, sums, z)
    cpu_kernels.direction(found, targets, near, coef, want)
    got = far_apart(torch.zeros_like(z))
    far = near._replace(weight=far_apart(near.weight))
    far_found = found._replace(total=far_apart(z))
    triton_kernels.direction(far_found, targets, far, coef, got)
    torch.testing.assert_close(got, want)
    total = far_apart(z)
    triton_kernels.rescale(total, coef)
    torch.testing.assert_close(total, z * coef[:, None])


def test_tiles_of_a_large_batch_cover_it_once():
    # N·V = 2^33: no number of the walk is an element of N·V, so none can overflow.
    assert covered(Tiling(8192, 1 << 24), 65536, 131072)[0] == 65536 * 131072 == 2**33


def covered(tiling: Tiling, rows: int, vocabulary: int) -> tuple[int, int]:
    """Area of all tiles, none beyond its bound, and the blocks of the first slice."""
    tiles = [
        ((block.stop - block.start) * (columns.stop - columns.start), columns.start)
        for columns in tiling.slices(vocabulary)
        for block in tiling.blocks(rows, columns.stop - columns.start)
    ]
    assert max(area for area, _ in tiles) <= tiling.elements
    return sum(area for area, _ in tiles), [start for _, start in tiles].count(0)


@pytest.mark.parametrize("gib", [8, 24, 80, 141])
def test_a_tile_holds_all_rows_that_its_share_of_the_card_allows(monkeypatch, gib):
    card = SimpleNamespace(total_memory=gib << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    tiling = triton_tile.TILES.tiling.on(torch.device("cuda", 0))
    assert tiling.elements * 4 == pytest.approx(card.total_memory / 320, abs=4)
    assert triton_tile.TILES.tiling.on(torch.device("cpu")) == triton_tile.TILES.tiling
    for rows in (1, 63, 500, 3277, 8192, 13107, 40000):
        shaped = tiling.for_rows(rows, 151936)
        area, blocks = covered(shaped, rows, 151936)
        assert area == rows * 151936
        assert (blocks == 1) == (rows * min(shaped.columns, 151936) <= tiling.elements)
        assert blocks == 1 or shaped.columns == 2048
