"""Multiply hidden [R, H] by weight [V, H] by tiles, softmax in the epilogue.

One device function forms a tile of the logits, and three kernels call it. Each is persistent: as
many programs as the card has multiprocessors take tiles in turn, GROUP tiles of rows for a slice of
the weight before the next slice, which is so read from memory once for the group. No kernel writes
a logit:

    statistics_kernel     maximum, mass and tilt of the columns beside the target; its logit
    exponentials_kernel   the same, and exp((z - base) / T) in bf16, from a base known before
    gradient_kernel       the gradient of the logits in 16 bits, from statistics known before

Products sum in fp32, and all behind them is fp32. `TMA`: hidden, weight and out are tensor
descriptors, whose copies the hardware makes and bounds; else pointers to rows without gaps.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rrgkern.triton_lib import math as lib
from rrgkern.triton_lib.softmax_row import gradient_at_target, gradient_block


@triton.jit
def tile_of_logits(
    hidden,
    weight,
    bias_ptr,
    tile,
    rows,
    columns,
    H: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    TMA: tl.constexpr,
    BIAS: tl.constexpr,
):
    """Return products [M, N] with bias, before the cap; first row and column."""
    wide = tl.cdiv(columns, N)
    group = tile // (GROUP * wide)
    within = tile % (GROUP * wide)
    tall = tl.minimum(tl.cdiv(rows, M) - group * GROUP, GROUP)
    first_row = (group * GROUP + within % tall) * M
    first_column = within // tall * N
    x = tl.zeros([M, N], tl.float32)
    if TMA:
        for k in range(0, H, K):
            x = tl.dot(hidden.load([first_row, k]), weight.load([first_column, k]).T, x)
    else:
        # The last row again beyond the end: what stands there is never stored.
        at_m = tl.minimum(first_row + tl.arange(0, M), rows - 1).to(tl.int64)
        at_n = tl.minimum(first_column + tl.arange(0, N), columns - 1).to(tl.int64)
        at_k = tl.arange(0, K)
        h_ptr = hidden + at_m[:, None] * H + at_k[None, :]
        w_ptr = weight + at_n[None, :] * H + at_k[:, None]
        for k in range(0, H, K):
            if H % K:
                inside = at_k < H - k
                h = tl.load(h_ptr + k, inside[None, :], other=0.0)
                w = tl.load(w_ptr + k, inside[:, None], other=0.0)
            else:
                h = tl.load(h_ptr + k)
                w = tl.load(w_ptr + k)
            x = tl.dot(h, w, x)
    if BIAS:
        at = first_column + tl.arange(0, N)
        x += tl.load(bias_ptr + at, at < columns, other=0.0).to(tl.float32)[None, :]
    return x, first_row, first_column


@triton.jit
def capped(x, cap, SOFTCAP: tl.constexpr):
    """Return cap * tanh(x / cap) within 2^-23 cap, its slope within 2^-22.

    A softmax asks for absolute precision: without a series for small x it takes half the registers.
    """
    z = x
    slope = tl.full([], 1.0, tl.float32)
    if SOFTCAP:
        small = tl.exp2(tl.abs(x) / cap * (-2.0 * lib.LOG2E))
        size = cap * (1.0 - small) / (1.0 + small)
        z = tl.where(x < 0, -size, size)
        slope = 4.0 * small / ((1.0 + small) * (1.0 + small))
    return z, slope


@triton.jit
def store_tile(
    out,
    values,
    first_row,
    first_column,
    rows,
    columns,
    stride,
    M: tl.constexpr,
    N: tl.constexpr,
    TMA: tl.constexpr,
):
    """Round the tile to 16 bits and store what lies inside."""
    if TMA:
        out.store([first_row, first_column], values.to(out.dtype))
    else:
        at_m, at_n = first_row + tl.arange(0, M), first_column + tl.arange(0, N)
        inside = (at_m < rows)[:, None] & (at_n < columns)[None, :]
        at = out + at_m.to(tl.int64)[:, None] * stride + at_n[None, :]
        tl.store(at, values.to(out.dtype.element_ty), inside)


@triton.jit
def sum_tile(
    x,
    first_row,
    first_column,
    targets_ptr,
    top_ptr,
    mass_ptr,
    tilt_ptr,
    target_ptr,
    rows,
    columns,
    scale,
    cap,
    M: tl.constexpr,
    N: tl.constexpr,
    SOFTCAP: tl.constexpr,
    ENTROPY: tl.constexpr,
):
    """Store the tile's maximum, mass and tilt a row, [parts, R]; the target's product, [R].

    Returns the exponentials [M, N] from the maximum a row [M], 0 at the target and outside, and
    that maximum.
    """
    row = first_row + tl.arange(0, M)
    column = first_column + tl.arange(0, N)
    inside = row < rows
    target = tl.load(targets_ptr + row, inside, other=-1).to(tl.int32)
    is_target = column[None, :] == target[:, None]
    # One tile has the target, and writes it before the cap.
    here = inside & (target >= first_column) & (target < first_column + N)
    tl.store(target_ptr + row, tl.sum(tl.where(is_target, x, 0.0), 1), here)
    z, _ = capped(x, cap, SOFTCAP)
    z = tl.where(is_target | (column >= columns)[None, :], float("-inf"), z)
    top = tl.max(z, 1)
    base = tl.where(top == float("-inf"), 0.0, top)
    bits = (z - base[:, None]) * scale
    e = tl.exp2(bits)
    at = first_column // N * rows + row
    tl.store(top_ptr + at, top, inside)
    tl.store(mass_ptr + at, tl.sum(e, 1), inside)
    if ENTROPY:
        # A column of probability 0 adds none: 0 * inf.
        tl.store(tilt_ptr + at, -tl.sum(tl.where(e > 0, bits * e, 0.0), 1), inside)
    return e, base


@triton.jit
def statistics_kernel(
    hidden,
    weight,
    bias_ptr,
    targets_ptr,
    top_ptr,
    mass_ptr,
    tilt_ptr,
    target_ptr,
    rows,
    columns,
    scale: tl.float32,
    cap: tl.float32,
    H: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    TMA: tl.constexpr,
    BIAS: tl.constexpr,
    SOFTCAP: tl.constexpr,
    ENTROPY: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    """Sum the softmax of each tile; `scale` = log2(e) / T."""
    tiles = tl.cdiv(rows, M) * tl.cdiv(columns, N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        x, first_row, first_column = tile_of_logits(
            hidden, weight, bias_ptr, tile, rows, columns, H, M, N, K, GROUP, TMA, BIAS
        )
        sum_tile(
            x,
            first_row,
            first_column,
            targets_ptr,
            top_ptr,
            mass_ptr,
            tilt_ptr,
            target_ptr,
            rows,
            columns,
            scale,
            cap,
            M,
            N,
            SOFTCAP,
            ENTROPY,
        )


@triton.jit
def exponentials_kernel(
    hidden,
    weight,
    bias_ptr,
    out,
    targets_ptr,
    base_ptr,
    top_ptr,
    mass_ptr,
    tilt_ptr,
    target_ptr,
    rows,
    columns,
    stride,
    scale: tl.float32,
    H: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    TMA: tl.constexpr,
    BIAS: tl.constexpr,
    ENTROPY: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    """Sum the softmax without a cap, and store exp((z - base) / T).

    bf16 has fp32's exponent, so a base within 60 nats of the row's logsumexp leaves 27 nats of
    columns below their maximum as normal numbers. 0 at the target.
    """
    tiles = tl.cdiv(rows, M) * tl.cdiv(columns, N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        x, first_row, first_column = tile_of_logits(
            hidden, weight, bias_ptr, tile, rows, columns, H, M, N, K, GROUP, TMA, BIAS
        )
        e, top = sum_tile(
            x,
            first_row,
            first_column,
            targets_ptr,
            top_ptr,
            mass_ptr,
            tilt_ptr,
            target_ptr,
            rows,
            columns,
            scale,
            scale,
            M,
            N,
            False,
            ENTROPY,
        )
        row = first_row + tl.arange(0, M)
        base = tl.load(base_ptr + row, row < rows, other=0.0)
        e *= tl.exp2((top - base) * scale)[:, None]
        store_tile(out, e, first_row, first_column, rows, columns, stride, M, N, TMA)


@triton.jit
def gradient_kernel(
    hidden,
    weight,
    bias_ptr,
    out,
    targets_ptr,
    coef_ptr,
    coef_entropy_ptr,
    logps_ptr,
    entropy_ptr,
    shift_ptr,
    lognorm_ptr,
    rows,
    columns,
    stride,
    per_temperature: tl.float32,
    cap: tl.float32,
    H: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    TMA: tl.constexpr,
    BIAS: tl.constexpr,
    SOFTCAP: tl.constexpr,
    ENTROPY: tl.constexpr,
    FAR: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    """Store the gradient by the products of some columns, whose statistics are known.

    Targets count from the first of the columns. Formulas: `triton_lib/softmax_row.py`.
    """
    tiles = tl.cdiv(rows, M) * tl.cdiv(columns, N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        x, first_row, first_column = tile_of_logits(
            hidden, weight, bias_ptr, tile, rows, columns, H, M, N, K, GROUP, TMA, BIAS
        )
        row = first_row + tl.arange(0, M)
        column = first_column + tl.arange(0, N)
        inside = row < rows
        target = tl.load(targets_ptr + row, inside, other=-1).to(tl.int32)
        coef = tl.load(coef_ptr + row, inside, other=0.0) * per_temperature
        shift = tl.load(shift_ptr + row, inside, other=0.0)
        lognorm = tl.load(lognorm_ptr + row, inside, other=0.0)
        logp = tl.load(logps_ptr + row, inside, other=0.0)
        coef_entropy = coef
        entropy = coef
        if ENTROPY:
            coef_entropy = tl.load(coef_entropy_ptr + row, inside, other=0.0) * per_temperature
            entropy = tl.load(entropy_ptr + row, inside, other=0.0)
        z, slope = capped(x, cap, SOFTCAP)
        dz = gradient_block(
            z,
            coef[:, None],
            coef_entropy[:, None],
            entropy[:, None],
            shift[:, None],
            lognorm[:, None],
            per_temperature,
            ENTROPY,
            FAR,
        )
        at_target = gradient_at_target(logp, coef, coef_entropy, entropy, ENTROPY, FAR)
        dz = tl.where(column[None, :] == target[:, None], at_target[:, None], dz)
        if SOFTCAP:
            dz *= slope
        store_tile(out, dz, first_row, first_column, rows, columns, stride, M, N, TMA)
