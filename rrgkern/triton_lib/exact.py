"""Elementary functions as exact in fp32 as PyTorch's own.

Triton's `exp` is the hardware's base-2 exponential of a rounded product: its relative error grows
with the argument to 1e-6 at 20 nats, and `exp(x) - 1 - x` loses every digit near 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG_RATIO_LIMIT = tl.constexpr(20.0)

LOG2_E = tl.constexpr(1.4426950408889634)
# ln 2 in two parts: the first has so few bits that its products with an exponent are exact.
LN2_HIGH = tl.constexpr(0.693359375)
LN2_LOW = tl.constexpr(-2.12194440054690583e-4)


@triton.jit
def difference(left, right):
    """left - right, and 0 where both are the same infinity; NaN stays NaN."""
    return tl.where(left == right, 0.0, left - right)


@triton.jit
def limited(x):
    """x clamped to ±20 nats; NaN stays NaN, which tl.minimum would swallow."""
    x = tl.where(x > LOG_RATIO_LIMIT, LOG_RATIO_LIMIT, x)
    return tl.where(x < -LOG_RATIO_LIMIT, -LOG_RATIO_LIMIT, x)


@triton.jit
def _reduced(x):
    """Reduce x to n, r and exp(r) - 1 - r.

    x = n ln 2 + r with |r| <= ln 2 / 2, by Taylor's series in fp32.
    """
    n = tl.floor(x * LOG2_E + 0.5)
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    series = 1 / 5040 + r * (1 / 40320)
    series = 1 / 720 + r * series
    series = 1 / 120 + r * series
    series = 1 / 24 + r * series
    series = 1 / 6 + r * series
    series = 1 / 2 + r * series
    return n, r, r * r * series


@triton.jit
def _power_of_two(n):
    """2^n for whole n in [-126, 127]."""
    return ((n.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def exp(x):
    """exp(x); beyond ±120 it is the value there, which fp32 rounds to infinity and 0."""
    if x.dtype == tl.float64:
        result = tl.exp(x)
    else:
        number = tl.where(x == x, x, 0.0)  # a NaN has no exponent
        n, r, tail = _reduced(tl.where(number > 120.0, 120.0, tl.maximum(number, -120.0)))
        # In two factors: 2^n alone leaves the range of fp32 before exp(x) does.
        half = tl.floor(n * 0.5)
        result = (1.0 + (r + tail)) * _power_of_two(half) * _power_of_two(n - half)
        result = tl.where(x == x, result, x)
    return result


@triton.jit
def exp_beyond_linear(x):
    """exp(x) - 1 and exp(x) - 1 - x, exact near 0; |x| <= 20."""
    if x.dtype == tl.float64:
        rise = tl.exp(x) - 1.0
        bend = rise - x
    else:
        n, r, tail = _reduced(tl.where(x == x, x, 0.0))
        scale = _power_of_two(n)
        rise = scale * (r + tail) + (scale - 1.0)
        bend = tl.where(n == 0, tail, rise - x)
        rise = tl.where(x == x, rise, x)
        bend = tl.where(x == x, bend, x)
    return rise, bend


@triton.jit
def divided(above, below):
    """above / below, rounded as IEEE asks."""
    if above.dtype == tl.float64:
        result = above / below
    else:
        result = tl.div_rn(above, below)
    return result


@triton.jit
def sigmoid_pair(x):
    """(σ(x), σ(-x)), neither rounded to 0 or 1 before its time."""
    e = exp(-tl.abs(x))
    large = divided(tl.full(e.shape, 1.0, e.dtype), 1.0 + e)
    small = divided(e, 1.0 + e)
    return tl.where(x < 0, small, large), tl.where(x < 0, large, small)
