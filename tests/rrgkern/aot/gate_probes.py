"""Kernels that the gates must refuse: one spills, one loads 16 bits at a time, one has no MMA, one
masks each step of its loop, one waits for a single load at a time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.rrgkern.aot.harness import Case
from tests.rrgkern.policy_loss.from_logits.aot_cases import UNDER_WAY, one_load_ahead


@triton.jit
def spilling_kernel(x_ptr, out_ptr, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + column)
    total = tl.zeros([WIDTH], tl.float32)
    for step in range(WIDTH):
        total += x * tl.load(x_ptr + step)
        x = tl.exp(x + total)
    tl.store(out_ptr + column, x * total)


@triton.jit
def narrow_kernel(x_ptr, out_ptr, stride, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)
    tl.store(out_ptr + column, tl.load(x_ptr + column * stride))


@triton.jit
def matrix_kernel(x_ptr, out_ptr, SIDE: tl.constexpr):
    row, column = tl.arange(0, SIDE)[:, None], tl.arange(0, SIDE)[None, :]
    tile = tl.load(x_ptr + row * SIDE + column)
    tl.store(out_ptr + row * SIDE + column, tl.dot(tile, tile))


@triton.jit
def loop_kernel(x_ptr, out_ptr, SIZE: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    column = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    if MASKED:
        for step in tl.range(tl.cdiv(SIZE, BLOCK)):
            at = step * BLOCK + column
            total += tl.load(x_ptr + at, at < SIZE, other=0.0)
    else:
        for step in tl.range(SIZE // BLOCK):
            total += tl.load(x_ptr + step * BLOCK + column)
        tail = SIZE // BLOCK * BLOCK + column
        total += tl.load(x_ptr + tail, tail < SIZE, other=0.0)
    tl.store(out_ptr + column, total)


def _loop(masked: bool) -> None:
    x = torch.empty(5000, device="meta")
    loop_kernel[(1,)](x, x, SIZE=5000, BLOCK=1024, MASKED=masked)


def _spill() -> None:
    x = torch.empty(4096, device="meta")
    spilling_kernel[(1,)](x, x, WIDTH=4096, num_warps=1)


def _narrow(stride: int) -> None:
    x = torch.empty(8192, dtype=torch.bfloat16, device="meta")
    narrow_kernel[(1,)](x, x, stride, WIDTH=1024)


def _matrix() -> None:
    x = torch.empty(64, 64, dtype=torch.bfloat16, device="meta")
    matrix_kernel[(1,)](x, torch.empty(64, 64, device="meta"), SIDE=64)


CASES = {
    "spill": Case(_spill),
    "narrow": Case(lambda: _narrow(3)),
    "wide": Case(lambda: _narrow(1)),
    "no matrix": Case(lambda: _narrow(1), matrix=True),
    "matrix": Case(_matrix, matrix=True),
    "masked loop": Case(lambda: _loop(True), bare=True),
    "bare loop": Case(lambda: _loop(False), bare=True),
    "one load ahead": Case(one_load_ahead, under_way=UNDER_WAY),
}
