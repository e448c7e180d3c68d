"""Compute log-probabilities and entropy from logits, and their gradient, in Triton.

Forward: a program owns a row. Each thread keeps the running sums of its own columns (see
`online_softmax.OnlineSoftmax`) and folds the columns of one 128-bit load at a time, so a column
costs one exponential and the row one reduction across threads, at the end. The target must stay out
of the sums: its block is folded first, with the target masked, and skipped by the loop, which so
compares no column with it. Reads N·V logits and 8N bytes of targets, writes 12N (16N with entropy).

Backward: a program owns a block of columns of one row; each logit is read once and written once. A
row whose coefficients are both 0 is not read: its gradient is 0 whatever it holds. Reads the logits
of active rows and about 24 bytes for each block of columns, writes N·V.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rrgkern.logps.inputs import (
    BYTES_PER_LOAD,
    FromLogits,
    FromLogitsBackward,
    check_targets,
    columns_per_load,
    row_walk,
)
from rrgkern.logps.online_softmax import FAR, LOG2E, SoftmaxStats, stats_dtype
from rrgkern.ops import pack
from rrgkern.triton_lib.softmax_row import close_row, gradient_at_target, gradient_block, sum_row

NUM_WARPS = 8
# Loads in flight per thread: of 128 bits, or of one column each where rows are not aligned.
WIDE_LOADS, NARROW_LOADS = 2, 4


PER_ROW = ("targets_ptr", "keep_ptr", "logps_ptr", "entropy_ptr", "shift_ptr", "lognorm_ptr")


@triton.jit(do_not_specialize=["rows_per_batch"], do_not_specialize_on_alignment=PER_ROW)
def token_logps_fwd_kernel(
    logits_ptr,
    targets_ptr,
    keep_ptr,
    logps_ptr,
    entropy_ptr,
    shift_ptr,
    lognorm_ptr,
    batch_stride,
    row_stride,
    column_stride,
    rows_per_batch,
    scale: tl.float64,
    VOCABULARY: tl.constexpr,
    ENTROPY: tl.constexpr,
    WIDE: tl.constexpr,
    FAR: tl.constexpr,
    LANES: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """One row per program; `scale` = log2(e) / T, statistics in the dtype WIDE."""
    # 1. The row, and its target's logit. A row that is not kept is not read.
    row = tl.program_id(0).to(tl.int64)
    if keep_ptr is not None:  # noqa: SIM102 - `and` would load from None
        if tl.load(keep_ptr + row) == 0:
            nothing = tl.full([], 0.0, WIDE)
            tl.store(logps_ptr + row, nothing)
            tl.store(shift_ptr + row, nothing)
            tl.store(lognorm_ptr + row, nothing)
            if ENTROPY:
                tl.store(entropy_ptr + row, nothing)
            return
    offset = (row // rows_per_batch) * batch_stride + (row % rows_per_batch) * row_stride
    logits_ptr += offset
    target = tl.load(targets_ptr + row)
    target_logit = tl.load(logits_ptr + target * column_stride).to(WIDE)
    scale = tl.full([], scale, WIDE)

    lane = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    BLOCK: tl.constexpr = LANES * VECTOR
    # 2. Online softmax over the columns other than the target.
    top, mass, tilt = sum_row(
        logits_ptr,
        target,
        lane,
        column_stride,
        scale,
        VOCABULARY,
        LANES,
        BLOCK,
        ENTROPY,
        FAR,
        EVICTION="",
        AHEAD=1,
    )

    # 3. Sums of the threads to one, to log-probability, entropy and what the backward needs.
    logp, shift, lognorm, entropy = close_row(top, mass, tilt, target_logit, scale, ENTROPY)
    tl.store(logps_ptr + row, logp)
    tl.store(shift_ptr + row, shift)
    tl.store(lognorm_ptr + row, lognorm)
    if ENTROPY:
        tl.store(entropy_ptr + row, entropy)


def token_logps_fwd(*inputs: Any) -> SoftmaxStats:
    """Serve `rrgkern::token_logps_fwd`."""
    logits, targets, temperature, entropy, keep = FromLogits(*inputs)
    vocabulary = logits.shape[-1]
    check_targets(targets, vocabulary, keep)
    wide = stats_dtype(logits.dtype)
    rows = len(targets)
    logps, shift, lognorm = (logits.new_empty(rows, dtype=wide) for _ in range(3))
    entropies = logits.new_empty(rows if entropy else 0, dtype=wide)
    vector = columns_per_load(logits)
    if rows:
        token_logps_fwd_kernel[(rows,)](
            logits,
            targets.contiguous(),
            None if keep is None else keep.contiguous(),
            logps,
            entropies,
            shift,
            lognorm,
            *row_walk(logits),
            LOG2E / temperature,
            VOCABULARY=vocabulary,
            ENTROPY=entropy,
            WIDE=tl.float64 if wide == torch.float64 else tl.float32,
            FAR=FAR,
            LANES=32 * NUM_WARPS * (WIDE_LOADS if vector > 1 else NARROW_LOADS),
            VECTOR=vector,
            num_warps=NUM_WARPS,
        )
    return SoftmaxStats(logps, entropies, shift, lognorm)


LOADS_PER_THREAD = 2


PER_ROW_OF_GRADIENT = (
    *("coef_ptr", "coef_entropy_ptr", "targets_ptr"),
    *("logps_ptr", "entropy_ptr", "shift_ptr", "lognorm_ptr"),
)


@triton.jit(
    do_not_specialize=["rows_per_batch"], do_not_specialize_on_alignment=PER_ROW_OF_GRADIENT
)
def token_logps_bwd_kernel(
    coef_ptr,
    coef_entropy_ptr,
    logits_ptr,
    targets_ptr,
    logps_ptr,
    entropy_ptr,
    shift_ptr,
    lognorm_ptr,
    gradient_ptr,
    batch_stride,
    row_stride,
    column_stride,
    rows_per_batch,
    gradient_batch_stride,
    gradient_row_stride,
    gradient_column_stride,
    inverse_temperature: tl.float64,
    VOCABULARY: tl.constexpr,
    ENTROPY: tl.constexpr,
    WIDE: tl.constexpr,
    FAR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One block of one row per program; arithmetic in the dtype WIDE."""
    # 1. The block of columns, and where its gradient goes.
    BLOCKS: tl.constexpr = tl.cdiv(VOCABULARY, BLOCK)
    row = (tl.program_id(0) // BLOCKS).to(tl.int64)
    columns = (tl.program_id(0) % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < VOCABULARY
    batch = row // rows_per_batch
    place = row % rows_per_batch
    gradient_ptr += batch * gradient_batch_stride + place * gradient_row_stride
    gradient_ptr += columns.to(tl.int64) * gradient_column_stride

    # 2. The row's coefficients: where both are 0 its logits are not read.
    coef = tl.load(coef_ptr + row)
    active = coef != 0
    if ENTROPY:
        coef_entropy = tl.load(coef_entropy_ptr + row)
        active = active | (coef_entropy != 0)
    per_temperature = tl.full([], inverse_temperature, WIDE)
    if active:
        # 3. The softmax again, from the saved statistics.
        target = tl.load(targets_ptr + row)
        logp = tl.load(logps_ptr + row)
        shift = tl.load(shift_ptr + row)
        lognorm = tl.load(lognorm_ptr + row)
        logits_ptr += batch * batch_stride + place * row_stride
        z = tl.load(logits_ptr + columns.to(tl.int64) * column_stride, inside, other=0.0).to(WIDE)
        # 4. Its gradient; the target's column has a form of its own, in which nothing cancels.
        coef *= per_temperature
        entropy = None
        coef_of_entropy = None
        if ENTROPY:
            entropy = tl.load(entropy_ptr + row)
            coef_of_entropy = coef_entropy * per_temperature
        gradient = gradient_block(
            z, coef, coef_of_entropy, entropy, shift, lognorm, per_temperature, ENTROPY, FAR
        )
        at_target = gradient_at_target(logp, coef, coef_of_entropy, entropy, ENTROPY, FAR)
        gradient = tl.where(columns == target, at_target, gradient)
        tl.store(gradient_ptr, gradient.to(gradient_ptr.dtype.element_ty), inside)
    else:
        tl.store(gradient_ptr, tl.zeros([BLOCK], gradient_ptr.dtype.element_ty), inside)


def token_logps_bwd(*inputs: Any) -> Tensor:
    """Serve `rrgkern::token_logps_bwd`: contiguous, of the shape and dtype of the logits."""
    x = pack(FromLogitsBackward, inputs)
    gradient = torch.empty(x.logits.shape, dtype=x.logits.dtype, device=x.logits.device)
    _launch(gradient, x)
    return gradient


def token_logps_bwd_(*inputs: Any) -> None:
    """Serve `rrgkern::token_logps_bwd_`: the same, written over the logits."""
    x = pack(FromLogitsBackward, inputs)
    _launch(x.logits, x)


def _launch(gradient: Tensor, x: FromLogitsBackward) -> None:
    (coef, coef_entropy), logits = x.coefficients, x.logits
    vocabulary = logits.shape[-1]
    block = LOADS_PER_THREAD * 32 * NUM_WARPS * BYTES_PER_LOAD // logits.element_size()
    if len(x.targets):
        token_logps_bwd_kernel[(len(x.targets) * triton.cdiv(vocabulary, block),)](
            coef.contiguous(),
            coef if coef_entropy is None else coef_entropy.contiguous(),
            logits,
            x.targets.contiguous(),
            *x.stats,
            gradient,
            *row_walk(logits),
            *row_walk(gradient)[:3],
            1 / x.temperature,
            VOCABULARY=vocabulary,
            ENTROPY=coef_entropy is not None,
            WIDE=tl.float64 if stats_dtype(logits.dtype) == torch.float64 else tl.float32,
            FAR=FAR,
            BLOCK=block,
            num_warps=NUM_WARPS,
        )
