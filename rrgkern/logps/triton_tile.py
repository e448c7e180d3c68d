"""Work on one tile of logits in Triton: its sums, its exponentials, its gradient.

The tile holds the raw products in fp32. Each kernel adds the bias and applies the cap on its way:
three or four operations on numbers that are in registers, instead of a pass over the tile. The
width is a run-time number, so that slices of any width share one compilation. Bytes a logit of the
tile, w those of the operands: the sums read 4, the exponentials 8 and write w, the gradient reads
4 and writes w.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rrgkern.dispatch import interpreting
from rrgkern.logps import from_hidden
from rrgkern.logps.head import Gradients, Head, Tile, Tiles, Tiling, tile_of
from rrgkern.logps.inputs import FromHidden, FromHiddenBackward
from rrgkern.logps.online_softmax import (
    FAR,
    LOG2E,
    Coefficients,
    RowSums,
    SoftmaxStats,
    stats_dtype,
)
from rrgkern.triton_lib import launch_options
from rrgkern.triton_lib import math as lib
from rrgkern.triton_lib.softmax_row import across_lanes, fold, gradient_at_target, gradient_block

NUM_WARPS = 4
# Left alone, the assembler spills a few values of a row in fp64 for a warp more.
WIDE_REGISTERS = 224
# Columns that a thread loads at a time: 128 bits of fp32.
VECTOR = 4
LANES = 32 * NUM_WARPS * 2
GRADIENT_BYTES = 32 * NUM_WARPS * 2 * 16
# A tile is 1/320 of a GPU's memory, 256 MiB of 80 GiB: a launch for each takes a host longer than
# the bytes of a smaller one would save. `elements` are those of no GPU, as under the interpreter.
TILES = Tiles(Tiling(columns=2048, elements=64 << 20, share=320), sys.modules[__name__])


def head_of(x: FromHidden | FromHiddenBackward) -> Head:
    """Make the head whose products read 16-bit operands as they are and sum in fp32."""
    # A CPU, where the interpreter runs, has no product of 16-bit operands with an fp32 result.
    states = x.hidden.dtype
    operands = stats_dtype(states) if interpreting() else states
    bias = None if x.bias is None else x.bias.contiguous()
    return Head(x.weight, bias, x.temperature, x.softcap, operands, states)


@triton.jit
def tanh(x):
    """Relative precision at both ends, unlike 1 - 2 / (exp(2x) + 1)."""
    less = lib.expm1(-2.0 * tl.abs(x))
    size = -less / (less + 2.0)
    return tl.where(x < 0, -size, size)


@triton.jit
def cap_slope(x):
    """1 - tanh(x)^2, which does not cancel where tanh saturates."""
    small = tl.exp(-2.0 * tl.abs(x))
    return 4.0 * small / ((1.0 + small) * (1.0 + small))


@triton.jit
def _products(z_ptr, bias_ptr, columns, inside, BIAS: tl.constexpr, WIDE: tl.constexpr):
    """Load products and add the bias, where `inside` unless it is None."""
    if inside is None:
        z = tl.load(z_ptr + columns)
        if BIAS:
            z += tl.load(bias_ptr + columns).to(WIDE)
    else:
        z = tl.load(z_ptr + columns, inside, other=0.0)
        if BIAS:
            z += tl.load(bias_ptr + columns, inside, other=0.0).to(WIDE)
    return z


@triton.jit
def _capped(x, cap, SOFTCAP: tl.constexpr):
    return cap * tanh(x / cap) if SOFTCAP else x


@triton.jit
def _store_exponentials(out_ptr, x, columns, inside, base, scale, cap, SOFTCAP: tl.constexpr):
    """Store exp(products x - base), times the slope of the cap."""
    e = tl.exp2((_capped(x, cap, SOFTCAP) - base) * scale)
    if SOFTCAP:
        e *= cap_slope(x / cap)
    tl.store(out_ptr + columns, e.to(out_ptr.dtype.element_ty), inside)


# A row has one number behind each of these pointers, and a block of rows begins where it may: odd
# lengths and slices of a larger batch share one compilation.
PER_ROW = ("targets_ptr", "top_ptr", "mass_ptr", "tilt_ptr", "target_logit_ptr", "decay_ptr")
PER_ROW_OF_GRADIENT = (
    *("targets_ptr", "coef_ptr", "coef_entropy_ptr"),
    *("logps_ptr", "entropy_ptr", "shift_ptr", "lognorm_ptr"),
)


@triton.jit(do_not_specialize_on_alignment=PER_ROW)
def fold_kernel(
    z_ptr,
    bias_ptr,
    targets_ptr,
    top_ptr,
    mass_ptr,
    tilt_ptr,
    target_logit_ptr,
    out_ptr,
    decay_ptr,
    z_stride,
    out_stride,
    width,
    first_column,
    scale: tl.float64,
    softcap: tl.float64,
    BIAS: tl.constexpr,
    SOFTCAP: tl.constexpr,
    ENTROPY: tl.constexpr,
    EXPONENTIALS: tl.constexpr,
    WIDE: tl.constexpr,
    FAR: tl.constexpr,
    LANES: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Add one row of the tile per program to its sums.

    `scale` = log2(e) / T."""
    # 1. The row, and its target's column in the tile, or -1.
    row = tl.program_id(0).to(tl.int64)
    z_ptr += row * z_stride
    local = tl.load(targets_ptr + row) - first_column
    target = tl.where((local >= 0) & (local < width), local, -1).to(tl.int32)
    scale_wide = tl.full([], scale, WIDE)
    cap = tl.full([], softcap, WIDE)
    lane = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    BLOCK: tl.constexpr = LANES * VECTOR
    # Whole blocks; the columns behind them are the tail.
    full = width // BLOCK
    tail = full * BLOCK + lane

    # 2. Online softmax: each thread sums its own columns. The target's block first, without it,
    # then the other whole blocks, then the tail.
    lane_top = tl.full([LANES], float("-inf"), WIDE)
    lane_mass = tl.zeros([LANES], WIDE)
    lane_tilt = tl.zeros([LANES], WIDE)
    target_block = tl.where(target < 0, full, target // BLOCK)
    others = full
    if target_block < full:
        others -= 1
        columns = target_block * BLOCK + lane
        z = _capped(_products(z_ptr, bias_ptr, columns, None, BIAS, WIDE), cap, SOFTCAP)
        z = tl.where(columns == target, float("-inf"), z)
        lane_top, lane_mass, lane_tilt = fold(
            lane_top, lane_mass, lane_tilt, z, scale_wide, ENTROPY, FAR
        )
    for step in tl.range(others):
        columns = (step + (step >= target_block).to(tl.int32)) * BLOCK + lane
        z = _capped(_products(z_ptr, bias_ptr, columns, None, BIAS, WIDE), cap, SOFTCAP)
        lane_top, lane_mass, lane_tilt = fold(
            lane_top, lane_mass, lane_tilt, z, scale_wide, ENTROPY, FAR
        )
    if full * BLOCK < width:
        inside = tail < width
        z = _capped(_products(z_ptr, bias_ptr, tail, inside, BIAS, WIDE), cap, SOFTCAP)
        z = tl.where(inside & (tail != target), z, float("-inf"))
        lane_top, lane_mass, lane_tilt = fold(
            lane_top, lane_mass, lane_tilt, z, scale_wide, ENTROPY, FAR
        )

    # 3. Sums of the threads to those of the tile.
    # The sums of the row are read before the reductions: their barriers stand between these
    # loads, by all threads, and the stores of one below.
    old_top = tl.load(top_ptr + row)
    old_mass = tl.load(mass_ptr + row)
    if ENTROPY:
        old_tilt = tl.load(tilt_ptr + row)
    tile_top, tile_mass, tilt = across_lanes(lane_top, lane_mass, lane_tilt, scale_wide, ENTROPY)
    mass = tile_mass.to(tl.float64)

    # 4. Those of the tile to those of the row, in fp64.
    top = tl.maximum(old_top, tile_top.to(tl.float64))
    base64 = tl.where(top == float("-inf"), 0.0, top)
    old_drop = tl.where(old_mass > 0, (base64 - old_top) * scale, 0.0)
    old_decay = tl.exp2(-old_drop)
    tile_drop = tl.where(mass > 0, (base64 - tile_top) * scale, 0.0)
    tile_decay = tl.exp2(-tile_drop)
    tl.store(top_ptr + row, top)
    tl.store(mass_ptr + row, old_mass * old_decay + mass * tile_decay)
    if ENTROPY:
        old_tilt += old_drop * lib.LN2 * old_mass
        tile_tilt = (tilt.to(tl.float64) + tile_drop * mass) * lib.LN2
        tl.store(tilt_ptr + row, old_tilt * old_decay + tile_tilt * tile_decay)
    # 5. The target's logit, from the tile that has it.
    if target >= 0:
        z_target = _products(z_ptr, bias_ptr, target, None, BIAS, WIDE)
        tl.store(target_logit_ptr + row, _capped(z_target, cap, SOFTCAP))

    # 6. Exponentials from the largest logit so far, and the factor of those from earlier ones.
    if EXPONENTIALS:
        tl.store(decay_ptr + row, old_decay.to(WIDE))
        out_ptr += row * out_stride
        base = base64.to(WIDE)
        for block in tl.range(full):
            columns = block * BLOCK + lane
            x = _products(z_ptr, bias_ptr, columns, None, BIAS, WIDE)
            _store_exponentials(out_ptr, x, columns, None, base, scale_wide, cap, SOFTCAP)
        if full * BLOCK < width:
            inside = tail < width
            x = _products(z_ptr, bias_ptr, tail, inside, BIAS, WIDE)
            _store_exponentials(out_ptr, x, tail, inside, base, scale_wide, cap, SOFTCAP)
        # 7. The target is none of the others: 0, over what the sweep left there.
        if target >= 0:
            tl.debug_barrier()
            tl.store(out_ptr + target, tl.zeros([], out_ptr.dtype.element_ty))


@triton.jit(do_not_specialize_on_alignment=PER_ROW_OF_GRADIENT)
def gradient_kernel(
    z_ptr,
    bias_ptr,
    out_ptr,
    targets_ptr,
    coef_ptr,
    coef_entropy_ptr,
    logps_ptr,
    entropy_ptr,
    shift_ptr,
    lognorm_ptr,
    z_stride,
    out_stride,
    width,
    first_column,
    inverse_temperature: tl.float64,
    softcap: tl.float64,
    BIAS: tl.constexpr,
    SOFTCAP: tl.constexpr,
    ENTROPY: tl.constexpr,
    WIDE: tl.constexpr,
    FAR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the gradient of one block of columns of one row per program."""
    # 1. The row's target, coefficient and statistics.
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    per_temperature = tl.full([], inverse_temperature, WIDE)
    cap = tl.full([], softcap, WIDE)
    local = tl.load(targets_ptr + row) - first_column
    target = tl.where((local >= 0) & (local < width), local, -1).to(tl.int32)
    coef = tl.load(coef_ptr + row) * per_temperature
    shift = tl.load(shift_ptr + row)
    lognorm = tl.load(lognorm_ptr + row)

    # 2. The logits again.
    x = _products(z_ptr + row * z_stride, bias_ptr, columns, inside, BIAS, WIDE)
    z = _capped(x, cap, SOFTCAP)
    # 3. Its gradient by the capped logits; at the target a form in which nothing cancels.
    coef_entropy = None
    entropy = None
    if ENTROPY:
        coef_entropy = tl.load(coef_entropy_ptr + row) * per_temperature
        entropy = tl.load(entropy_ptr + row)
    dz = gradient_block(
        z, coef, coef_entropy, entropy, shift, lognorm, per_temperature, ENTROPY, FAR
    )
    if (target >= 0) & (target // BLOCK == tl.program_id(1)):
        logp = tl.load(logps_ptr + row)
        at_target = gradient_at_target(logp, coef, coef_entropy, entropy, ENTROPY, FAR)
        dz = tl.where(columns == target, at_target, dz)
    # 4. By the products: the chain rule through the cap.
    if SOFTCAP:
        dz *= cap_slope(x / cap)
    tl.store(out_ptr + row * out_stride + columns, dz.to(out_ptr.dtype.element_ty), inside)


def add_to_sums(tile: Tile, sums: RowSums, entropy: bool) -> None:
    """Add the tile to `sums`, see `cpu_tile.add_to_sums`; the tile is only read."""
    _fold(tile, sums, entropy, None)


def exponentials(tile: Tile, sums: RowSums, entropy: bool) -> tuple[Tensor, Tensor]:
    """See `cpu_tile.exponentials`; they are written to `spare`."""
    out, decay = _spare(tile), torch.empty_like(sums.target_logit)
    _fold(tile, sums, entropy, (out, decay))
    return out, decay


def _fold(tile: Tile, sums: RowSums, entropy: bool, written: tuple[Tensor, Tensor] | None) -> None:
    z, head = tile.z, tile.head
    out, decay = written or (z, sums.target_logit)
    fold_kernel[(len(z),)](
        z,
        *_bias(tile),
        tile.targets,
        *sums.others,
        sums.target_logit,
        out,
        decay,
        z.stride(0),
        out.stride(0),
        z.shape[1],
        tile.columns.start,
        LOG2E / head.temperature,
        head.softcap,
        ENTROPY=entropy,
        EXPONENTIALS=written is not None,
        LANES=LANES,
        VECTOR=VECTOR,
        **_variant(head),
    )


def tile_gradient(tile: Tile, stats: SoftmaxStats, coefficients: Coefficients) -> Tensor:
    """See `cpu_tile.tile_gradient`; written to `spare`."""
    z, head, (coef, coef_entropy) = tile.z, tile.head, coefficients
    out, block = _spare(tile), GRADIENT_BYTES // z.element_size()
    gradient_kernel[(len(z), triton.cdiv(z.shape[1], block))](
        z,
        *_bias(tile),
        out,
        tile.targets,
        coef,
        coef if coef_entropy is None else coef_entropy,
        *stats,
        z.stride(0),
        out.stride(0),
        z.shape[1],
        tile.columns.start,
        1 / head.temperature,
        head.softcap,
        ENTROPY=coef_entropy is not None,
        BLOCK=block,
        **_variant(head),
    )
    return out


def _spare(tile: Tile) -> Tensor:
    assert tile.spare is not None
    return tile_of(tile.spare, *tile.z.shape)


def _bias(tile: Tile) -> tuple[Tensor]:
    bias = tile.head.bias
    return (tile.z if bias is None else bias[tile.columns],)


def _variant(head: Head) -> dict[str, Any]:
    return {
        "BIAS": head.bias is not None,
        "SOFTCAP": head.softcap != 0,
        "WIDE": tl.float64 if head.wide == torch.float64 else tl.float32,
        "FAR": FAR,
        **launch_options(NUM_WARPS, WIDE_REGISTERS if head.wide == torch.float64 else None),
    }


def fwd(*inputs: Any) -> SoftmaxStats:
    """Serve `rrgkern::linear_token_logps_fwd`."""
    return from_hidden.fwd(TILES, *inputs)


def bwd(*inputs: Any) -> Gradients:
    """Serve `rrgkern::linear_token_logps_bwd`."""
    return from_hidden.bwd(TILES, *inputs)


def bwd_into(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Serve `rrgkern::linear_token_logps_bwd_into`."""
    return from_hidden.bwd_into(TILES, *inputs)
