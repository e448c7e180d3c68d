"""Kernels that the gates must refuse: one spills, one masks each step of its loop."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.rrgkern.aot.harness import Case


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
def loop_kernel(x_ptr, out_ptr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for step in tl.range(tl.cdiv(SIZE, BLOCK)):
        at = step * BLOCK + column
        total += tl.load(x_ptr + at, at < SIZE, other=0.0)
    tl.store(out_ptr + column, total)


def _loop() -> None:
    x = torch.empty(5000, device="meta")
    loop_kernel[(1,)](x, x, SIZE=5000, BLOCK=1024)


def _spill() -> None:
    x = torch.empty(4096, device="meta")
    spilling_kernel[(1,)](x, x, WIDTH=4096, num_warps=1)


CASES = {"spill": Case(_spill), "masked loop": Case(_loop, bare=True)}
