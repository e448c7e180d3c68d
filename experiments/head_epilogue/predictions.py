"""Predict bytes, operations and time of a head with an epilogue beside tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from experiments.head_epilogue.card import IN_CACHE, ROOM, SHARE, TILES
from rrgkern.logps.head import Tiling
from rrgkern.logps.triton_tile import TILES as HEAD_OF_TILES

# Of an H100 of 80 GB, from bench/results: operations and bytes a second (bench/ceilings.py).
OPERATIONS, BANDWIDTH, MEMORY, CACHE = 790e12, 3.03e12, 80 << 30, 50 << 20
WIDTH, VOCABULARY = 2048, 151936
SCORED, ACTIVE = 0.4, 0.65  # shares, as in bench/launches.py


class Work(NamedTuple):
    """Operations of plain products and of those with an epilogue, and bytes of memory traffic.

    `room` are bytes beside inputs and gradients.
    """

    plain: float
    own: float
    traffic: float
    room: float

    @property
    def milliseconds(self) -> float:
        """Add the times of operations and bytes, as if none hid behind the other."""
        operations = (self.plain + self.own / SHARE) / OPERATIONS
        return 1e3 * (operations + self.traffic / BANDWIDTH)


def cases() -> Iterator[tuple[str, int, int, bool]]:
    """Yield four heads: names, rows, those with a coefficient, if W is frozen."""
    for positions in (8192, 32768):
        rows = round(SCORED * positions)
        for frozen in (True, False):
            kind = "frozen" if frozen else "trainable"
            yield f"logps {positions >> 10}k {kind}", rows, round(ACTIVE * rows), frozen


def products(rows: int, active: int, frozen: bool) -> tuple[float, float]:
    """Count the operations that form logits, and those of gradients."""
    one = 2.0 * WIDTH * VOCABULARY
    return one * (rows + active), one * active * (1 if frozen else 2)


def by_tiles(rows: int, active: int, frozen: bool) -> Work:
    """Count what a head of tiles moves: its logits are written in fp32 and read."""
    logits, gradients = products(rows, active, frozen)
    tiling: Tiling = HEAD_OF_TILES.tiling
    tiling = tiling._replace(elements=MEMORY // tiling.share // 4)
    traffic = 0.0
    for count, backward in ((rows, False), (active, True)):
        for columns in (of_pass := tiling.for_rows(count, VOCABULARY)).slices(VOCABULARY):
            width = columns.stop - columns.start
            blocks = len(list(of_pass.blocks(count, width)))
            slice_of_weight = 2 * WIDTH * width * blocks
            # Products read h and W; their logits are written and read, 4 bytes each.
            traffic += 2 * count * WIDTH + slice_of_weight + 8 * count * width
            if backward:
                traffic += _gradients_of(count, width, frozen)
                traffic += slice_of_weight
                if not frozen and blocks > 1:  # summed in fp32
                    traffic += 8 * WIDTH * width * (blocks - 1)
    return Work(logits + gradients, 0.0, traffic, 6.0 * tiling.elements)


def by_epilogue(rows: int, active: int, frozen: bool) -> Work:
    """Count what a product with an epilogue moves: no logit; gradients in 16 bits."""
    logits, gradients = products(rows, active, frozen)
    tiles = TILES[90][0]
    sums = 8.0 * rows * math.ceil(VOCABULARY / tiles.n)
    # Of each tile's sums, written in fp32: read, widened to fp64, and four passes over those.
    traffic = sums + 6 * 2 * sums
    width = min(VOCABULARY, MEMORY // ROOM // (2 * active) // tiles.n * tiles.n)
    for count in (rows, active):  # the weight once for a group of rows
        groups = math.ceil(count / (CACHE // IN_CACHE // (2 * WIDTH)))
        traffic += 2 * WIDTH * (VOCABULARY * groups + count)
    for start in range(0, VOCABULARY, width):
        columns = min(width, VOCABULARY - start)
        traffic += _gradients_of(active, columns, frozen) + 2 * WIDTH * columns
    return Work(gradients, logits, traffic, 2.0 * active * width + sums * 7)


def _gradients_of(count: int, width: int, frozen: bool) -> float:
    """Count bytes behind the logits of a slice: dz once, and what the products read and sum."""
    dz = 2.0 * count * width
    traffic = 2 * dz + 8 * count * WIDTH  # written, read; dhidden summed in fp32
    return traffic if frozen else traffic + dz + 2 * WIDTH * (width + count)


def lines() -> Iterator[str]:
    """Yield a table of the four heads, both ways."""
    yield f"Predictions for an H100 of {OPERATIONS / 1e12:.0f} TFLOP/s (cuBLAS, bf16) and"
    yield f"{BANDWIDTH / 1e12} TB/s, a product with an epilogue at {SHARE} of cuBLAS, {WIDTH} ×"
    yield f"{VOCABULARY}. No GPU has run it."
    yield ""
    yield "| case | by | TFLOP | with an epilogue | GB moved | GiB of room | ms, predicted |"
    yield "|---|---|---|---|---|---|---|"
    for name, rows, active, frozen in cases():
        for way, count in (("tiles", by_tiles), ("epilogue", by_epilogue)):
            work = count(rows, active, frozen)
            row = f"| {name} | {way} | {(work.plain + work.own) / 1e12:.2f} | "
            row += f"{work.own / 1e12:.2f} | {work.traffic / 1e9:.1f} | "
            yield row + f"{work.room / 2**30:.2f} | {work.milliseconds:.1f} |"
