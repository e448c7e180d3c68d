"""Gradient of the logits from the saved statistics: each logit is read once and written once.

A program owns a block of columns of one row. A row whose coefficients are both 0 is not read: its
gradient is 0 whatever it holds.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from rrgkern.token_logps.layout import BYTES_PER_LOAD, row_walk
from rrgkern.token_logps.row_stats import FAR, stats_dtype
from rrgkern.triton_lib.softmax_row import gradient_at_target, gradient_block

NUM_WARPS = 8
LOADS_PER_THREAD = 2


PER_ROW = (
    *("coef_ptr", "coef_entropy_ptr", "targets_ptr"),
    *("logps_ptr", "entropy_ptr", "shift_ptr", "lognorm_ptr"),
)


@triton.jit(do_not_specialize=["rows_per_batch"], do_not_specialize_on_alignment=PER_ROW)
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
    BLOCKS: tl.constexpr = tl.cdiv(VOCABULARY, BLOCK)
    row = (tl.program_id(0) // BLOCKS).to(tl.int64)
    columns = (tl.program_id(0) % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < VOCABULARY
    batch = row // rows_per_batch
    place = row % rows_per_batch
    gradient_ptr += batch * gradient_batch_stride + place * gradient_row_stride
    gradient_ptr += columns.to(tl.int64) * gradient_column_stride

    coef = tl.load(coef_ptr + row)
    active = coef != 0
    if ENTROPY:
        coef_entropy = tl.load(coef_entropy_ptr + row)
        active = active | (coef_entropy != 0)
    per_temperature = tl.full([], inverse_temperature, WIDE)
    if active:
        target = tl.load(targets_ptr + row)
        logp = tl.load(logps_ptr + row)
        shift = tl.load(shift_ptr + row)
        lognorm = tl.load(lognorm_ptr + row)
        logits_ptr += batch * batch_stride + place * row_stride
        z = tl.load(logits_ptr + columns.to(tl.int64) * column_stride, inside, other=0.0).to(WIDE)
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


def token_logps_bwd(
    coef: Tensor,
    coef_entropy: Tensor | None,
    logits: Tensor,
    targets: Tensor,
    logps: Tensor,
    entropy: Tensor,
    shift: Tensor,
    lognorm: Tensor,
    temperature: float,
) -> Tensor:
    """Gradient, contiguous, of the shape and dtype of `logits`: [N, V] or [B, L, V]."""
    gradient = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    stats = (logps, entropy, shift, lognorm)
    _launch(gradient, coef, coef_entropy, logits, targets, stats, temperature)
    return gradient


def token_logps_bwd_(
    coef: Tensor,
    coef_entropy: Tensor | None,
    logits: Tensor,
    targets: Tensor,
    logps: Tensor,
    entropy: Tensor,
    shift: Tensor,
    lognorm: Tensor,
    temperature: float,
) -> None:
    """The same, written over the logits."""
    stats = (logps, entropy, shift, lognorm)
    _launch(logits, coef, coef_entropy, logits, targets, stats, temperature)


def _launch(
    gradient: Tensor,
    coef: Tensor,
    coef_entropy: Tensor | None,
    logits: Tensor,
    targets: Tensor,
    stats: tuple[Tensor, Tensor, Tensor, Tensor],
    temperature: float,
) -> None:
    vocabulary = logits.shape[-1]
    block = LOADS_PER_THREAD * 32 * NUM_WARPS * BYTES_PER_LOAD // logits.element_size()
    if len(targets):
        token_logps_bwd_kernel[(len(targets) * triton.cdiv(vocabulary, block),)](
            coef.contiguous(),
            coef if coef_entropy is None else coef_entropy.contiguous(),
            logits,
            targets.contiguous(),
            *stats,
            gradient,
            *row_walk(logits),
            *row_walk(gradient)[:3],
            1 / temperature,
            VOCABULARY=vocabulary,
            ENTROPY=coef_entropy is not None,
            WIDE=tl.float64 if stats_dtype(logits.dtype) == torch.float64 else tl.float32,
            FAR=FAR,
            BLOCK=block,
            num_warps=NUM_WARPS,
        )
