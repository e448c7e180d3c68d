"""Launches to compile ahead of time: the target vocabulary, one that is not divisible, fp64.

From logits: both kernels. From hidden states: the steps on a tile of the logits, the last slice of
an odd vocabulary among them.
"""

from __future__ import annotations

import torch

from rrgkern.logps.head import Head, Tile
from rrgkern.logps.online_softmax import Coefficients, RowSums, SoftmaxStats, stats_dtype
from rrgkern.logps.triton_from_logits import token_logps_bwd, token_logps_fwd
from rrgkern.logps.triton_tile import TILES
from tests.rrgkern.aot.harness import Case, per_row

ROWS = 8192
VOCABULARY = 151936
ODD_VOCABULARY = 151665


def forward(
    vocabulary: int, dtype: torch.dtype, entropy: bool, rows: int = ROWS, temperature: float = 0.7
) -> None:
    logits = torch.empty(rows, vocabulary, dtype=dtype, device="meta")
    token_logps_fwd(logits, per_row(rows, torch.int64), temperature, entropy)


def masked_forward() -> None:
    logits = torch.empty(ROWS, VOCABULARY, dtype=torch.bfloat16, device="meta")
    token_logps_fwd(logits, per_row(ROWS, torch.int64), 0.7, True, per_row(ROWS, torch.bool))


def backward(
    vocabulary: int, dtype: torch.dtype, entropy: bool, rows: int = ROWS, temperature: float = 0.7
) -> None:
    logits = torch.empty(rows, vocabulary, dtype=dtype, device="meta")
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    coef, *stats = (per_row(rows, wide) for _ in range(5))
    targets = per_row(rows, torch.int64)
    token_logps_bwd(coef, coef if entropy else None, logits, targets, *stats, temperature)


SHAPES = {
    "bf16": (151936, torch.bfloat16, False),
    "bf16, entropy": (151936, torch.bfloat16, True),
    "fp32, entropy": (151936, torch.float32, True),
    "fp64, entropy": (151936, torch.float64, True),
    "bf16, entropy, odd V": (151665, torch.bfloat16, True),
}
# Rows of an odd vocabulary are not aligned; fp64 is there to be exact.
NOT_STREAMING = ("fp64, entropy", "bf16, entropy, odd V")

FROM_LOGITS = {
    f"{call.__name__}, {name}": Case(
        lambda call=call, shape=shape: call(*shape), streaming=name not in NOT_STREAMING, bare=True
    )
    for call in (forward, backward)
    for name, shape in SHAPES.items()
} | {"forward, bf16, entropy, masked": Case(masked_forward, streaming=True, bare=True)}


def meta(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def tile(
    vocabulary: int, dtype: torch.dtype, rich: bool, rows: int, temperature: float, last: bool
) -> Tile:
    """`rich`: with bias and cap."""
    columns = list(TILES.tiling.slices(vocabulary))[-1 if last else 1]
    width, wide = columns.stop - columns.start, stats_dtype(dtype)
    return Tile(
        meta(rows, width, dtype=wide),
        per_row(rows, torch.int64),
        columns,
        head(vocabulary, dtype, rich, temperature),
        spare=meta(rows * width, dtype=dtype),
    )


def head(vocabulary: int, dtype: torch.dtype, rich: bool, temperature: float) -> Head:
    weight = meta(vocabulary, 2048, dtype=dtype)
    bias = meta(vocabulary, dtype=dtype) if rich else None
    return Head(weight, bias, temperature, 30.0 if rich else 0.0, dtype)


def sweep(
    step: str,
    vocabulary: int,
    dtype: torch.dtype,
    rich: bool,
    rows: int = 2048,
    temperature: float = 0.7,
    last: bool = False,
) -> None:
    """`rich`: with bias, cap and entropy."""
    given = tile(vocabulary, dtype, rich, rows, temperature, last)
    sums = RowSums.empty(meta(0, dtype=dtype), rows, stats_dtype(dtype))
    getattr(TILES.kernels, step)(given, sums, rich)


def slope(
    vocabulary: int,
    dtype: torch.dtype,
    rich: bool,
    rows: int = 2048,
    temperature: float = 0.7,
    last: bool = False,
) -> None:
    given = tile(vocabulary, dtype, rich, rows, temperature, last)
    coef, *stats = (per_row(rows, stats_dtype(dtype)) for _ in range(5))
    TILES.kernels.tile_gradient(
        given, SoftmaxStats(*stats), Coefficients(coef, coef if rich else None)
    )


def _tile_cases() -> dict[str, Case]:
    calls = {
        "add_to_sums": lambda *a, **k: sweep("add_to_sums", *a, **k),
        "exponentials": lambda *a, **k: sweep("exponentials", *a, **k),
        "tile_gradient": slope,
    }
    cases = {}
    for name, call in calls.items():
        for rich in (False, True):
            key = f"{name}, bf16{', bias, cap, entropy' if rich else ''}"
            cases[key] = Case(lambda c=call, r=rich: c(VOCABULARY, torch.bfloat16, r), bare=True)
        # Rows of an odd width are not aligned, and fp64 is there to be exact.
        cases[f"{name}, last slice of an odd V"] = Case(
            lambda c=call: c(ODD_VOCABULARY, torch.bfloat16, False, last=True), streaming=False
        )
        if name != "add_to_sums":  # which is the first half of "exponentials"
            cases[f"{name}, fp64"] = Case(
                lambda c=call: c(VOCABULARY, torch.float64, True), streaming=False
            )
    return cases


CASES = FROM_LOGITS | _tile_cases()
