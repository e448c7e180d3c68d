"""Kernels that the gates must refuse: one spills, one loads 16 bits at a time and has no MMA, one
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


def _narrow() -> None:
    x = torch.empty(8192, dtype=torch.bfloat16, device="meta")
    narrow_kernel[(1,)](x, x, 3, WIDTH=1024)


CASES = {
    "spill": Case(_spill),
    "narrow": Case(_narrow, matrix=True),
    "masked loop": Case(_loop, bare=True),
    "one load ahead": Case(one_load_ahead, under_way=UNDER_WAY),
}
