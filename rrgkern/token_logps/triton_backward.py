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
from rrgkern.triton_lib import math as lib

NUM_WARPS = 8
LOADS_PER_THREAD = 2


@triton.jit(do_not_specialize=["rows_per_batch"])
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
    gradient_stride,
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
    gradient_ptr += row * gradient_stride + columns

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
        coef *= per_temperature
        at_target = -coef * lib.expm1(logp)

        logits_ptr += (row // rows_per_batch) * batch_stride + (row % rows_per_batch) * row_stride
        z = tl.load(logits_ptr + columns.to(tl.int64) * column_stride, inside, other=0.0).to(WIDE)
        log_p = (z - shift) * per_temperature - lognorm
        p = tl.exp2(log_p * lib.LOG2E)
        if ENTROPY:
            entropy = tl.load(entropy_ptr + row)
            coef_entropy *= per_temperature
            # -inf is moved up before it meets a probability of 0.
            excess = tl.maximum(log_p, -FAR) + entropy
            gradient = -p * (coef + coef_entropy * excess)
            excess_target = tl.maximum(logp, -FAR) + entropy
            at_target -= coef_entropy * tl.exp(logp) * excess_target
        else:
            gradient = -coef * p
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
    vocabulary = logits.shape[-1]
    block = LOADS_PER_THREAD * 32 * NUM_WARPS * BYTES_PER_LOAD // logits.element_size()
    if len(targets):
        token_logps_bwd_kernel[(len(targets) * triton.cdiv(vocabulary, block),)](
            coef.contiguous(),
            coef if coef_entropy is None else coef_entropy.contiguous(),
            logits,
            targets.contiguous(),
            logps,
            entropy,
            shift,
            lognorm,
            gradient,
            *row_walk(logits),
            vocabulary,
            1 / temperature,
            VOCABULARY=vocabulary,
            ENTROPY=coef_entropy is not None,
            WIDE=tl.float64 if stats_dtype(logits.dtype) == torch.float64 else tl.float32,
            FAR=FAR,
            BLOCK=block,
            num_warps=NUM_WARPS,
        )
    return gradient
