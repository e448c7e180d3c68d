"""Launches to compile ahead of time: the target vocabulary, one that is not divisible, fp64."""

from __future__ import annotations

import torch

from rrgkern.token_logps.triton_backward import token_logps_bwd
from rrgkern.token_logps.triton_forward import token_logps_fwd
from tests.rrgkern.aot.harness import Case, per_row

ROWS = 8192


def forward(
    vocabulary: int, dtype: torch.dtype, entropy: bool, rows: int = ROWS, temperature: float = 0.7
) -> None:
    logits = torch.empty(rows, vocabulary, dtype=dtype, device="meta")
    token_logps_fwd(logits, per_row(rows, torch.int64), temperature, entropy)


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

CASES = {
    f"{call.__name__}, {name}": Case(
        lambda call=call, shape=shape: call(*shape), streaming=name not in NOT_STREAMING
    )
    for call in (forward, backward)
    for name, shape in SHAPES.items()
}
