"""Scalar functions that keep their relative precision where the textbook form loses it.

Triton's libdevice has log1p and expm1, but not in its interpreter. Both use Kahan's identity: the
rounding of 1 + x or exp(x) appears in two places and cancels.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
LN2: tl.constexpr = tl.constexpr(0.6931471805599453)


@triton.jit
def log1p(x):
    """log(1 + x) for x >= 0, +inf included."""
    u = 1.0 + x
    ratio = x / tl.where(u == 1.0, 1.0, u - 1.0)
    return tl.where(u == 1.0, x, tl.where(u == float("inf"), u, tl.log(u) * ratio))


@triton.jit
def expm1(x):
    """exp(x) - 1 for x <= 0, -inf included."""
    u = tl.exp(x)
    log_u = tl.log(tl.where((u == 1.0) | (u == 0.0), 0.5, u))
    return tl.where(u == 1.0, x, tl.where(u == 0.0, -1.0, (u - 1.0) * x / log_u))


@triton.jit
def softplus(x):
    """log(1 + exp(x)), exact at both ends."""
    return tl.maximum(x, 0.0) + log1p(tl.exp(-tl.abs(x)))


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)) without overflow; relative precision at both ends."""
    small = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, small) / (1.0 + small)
