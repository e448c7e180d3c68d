"""Launch the kernels of the loss from logits."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from rrgkern.logps.inputs import check_targets, columns_per_load, row_walk
from rrgkern.logps.online_softmax import FAR, LOG2E, stats_dtype
from rrgkern.ops import pack
from rrgkern.policy_loss.from_logits.reference import LogitsOutputs
from rrgkern.policy_loss.from_logits.triton_kernels import (
    policy_loss_from_logits_kernel,
    policy_loss_from_logits_scale_kernel,
)
from rrgkern.policy_loss.inputs import LogitsInputs, LogitsInputsAnew
from rrgkern.policy_loss.reference import METRICS
from rrgkern.policy_loss.terms import sampler_bounds, surrogate_numbers
from rrgkern.policy_loss.triton_policy_loss import finish
from rrgkern.triton_lib import launch_options
from rrgkern.triton_lib.policy import KL_CODES, MODE_CODES, SURROGATE_CODES
from rrgkern.triton_lib.policy_sums import ROWS

# Loads of a block per thread: of 128 bits, or of one column each where rows are not aligned; and
# how many blocks are loaded ahead. With 1024 threads on a multiprocessor 32 KB are under way: at
# the memory's full speed a latency of 0.7 us takes 23 KB on an H200, 34 KB on a B200 (estimates).
WIDE_LOADS, NARROW_LOADS, AHEAD = 1, 4, 2
# Bytes of a row up to which so many warps serve it: with 2048 threads on a multiprocessor, its rows
# under way take about 300 KB of an L2 cache that has 370 KB for each (A100: 40 MB for 108, H100 and
# H200: 50 MB for 132, B200: 126 MB for 148).
WARPS_BY_ROW_BYTES = ((1 << 16, 8), (1 << 17, 16))
MOST_WARPS = 32
# fp64 is there to be exact; its registers would not fit in more.
WARPS_FP64 = 8
MAX_REGISTERS_FP64 = 128
# All that 32 warps can have. Left alone, the assembler aims for half, and spills in some variants.
MAX_REGISTERS = 64
SCALE_WARPS = 8
# Enough to fill any GPU; each returns at once where the upstream gradient is 1.
SCALE_PROGRAMS = 1024


def policy_loss_from_logits_fwd(*inputs: Any) -> LogitsOutputs:
    """Serve `rrgkern::policy_loss_from_logits_fwd`: the gradient goes to memory of its own."""
    call, with_gradient = pack(LogitsInputsAnew, inputs)
    logits = call.logits
    gradient = torch.empty(
        logits.shape if with_gradient else (0,), dtype=logits.dtype, device=logits.device
    )
    partials, active = sweep_rows(call, gradient if with_gradient else None)
    loss, metrics = _finished(partials, active, stats_dtype(logits.dtype))
    return LogitsOutputs(loss, gradient, active, metrics)


def policy_loss_from_logits_fwd_(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Serve `rrgkern::policy_loss_from_logits_fwd_`: the gradient takes the place of the logits."""
    call = pack(LogitsInputs, inputs)
    partials, active = sweep_rows(call, call.logits)
    loss, metrics = _finished(partials, active, stats_dtype(call.logits.dtype))
    return loss, active, metrics


def sweep_rows(call: LogitsInputs, gradient: Tensor | None) -> tuple[Tensor, Tensor]:
    """The launch over the rows: partial sums [ROWS, N] and active [N]; writes `gradient`."""
    logits, targets, policy, temperature, entropy = call
    variant = policy.variant
    vocabulary = logits.shape[-1]
    rows = len(targets)
    check_targets(targets, vocabulary, policy.mask)
    active = torch.empty(rows, dtype=torch.bool, device=logits.device)
    partials = torch.empty(ROWS.value, rows, dtype=torch.float64, device=logits.device)
    if not rows:
        return partials, active
    vector = columns_per_load(logits)
    warps = warps_of(logits)
    lanes = 32 * warps * (WIDE_LOADS if vector > 1 else NARROW_LOADS)
    policy_loss_from_logits_kernel[(rows,)](
        logits,
        targets.contiguous(),
        *policy.tensors,
        gradient,
        active,
        partials,
        *row_walk(logits),
        *row_walk(logits if gradient is None else gradient)[:3],
        policy.offsets.numel() - 1,
        LOG2E / temperature,
        1 / temperature,
        variant.beta,
        variant.entropy_coef,
        *sampler_bounds(variant),
        *surrogate_numbers(variant),
        SURROGATE=SURROGATE_CODES[variant.surrogate],
        KL=KL_CODES[variant.kl],
        KL_WEIGHTED=variant.kl_ratio_weight and variant.beta != 0,
        SAMPLER_MODE=MODE_CODES[variant.sampler_mode],
        ADVANTAGE_PER_TOKEN=policy.advantage_per_token,
        SCALE_PER_TOKEN=policy.scale_per_token,
        FIND_SEQUENCE=not (
            policy.advantage_per_token and policy.scale_per_token and policy.on_policy is None
        ),
        ENTROPY=entropy,
        BONUS=variant.entropy_coef != 0,
        VOCABULARY=vocabulary,
        WIDE=_wide(logits),
        FAR=FAR,
        LANES=lanes,
        VECTOR=vector,
        AHEAD=AHEAD,
        **launch_options(
            warps, MAX_REGISTERS_FP64 if logits.dtype == torch.float64 else MAX_REGISTERS
        ),
    )
    return partials, active


def warps_of(logits: Tensor) -> int:
    """Warps of a program, so that the rows under way fit in the L2 cache."""
    if logits.dtype == torch.float64:
        return WARPS_FP64
    row_bytes = logits.shape[-1] * logits.element_size()
    return next((warps for most, warps in WARPS_BY_ROW_BYTES if row_bytes <= most), MOST_WARPS)


def policy_loss_from_logits_scale_(gradient: Tensor, active: Tensor, factor: Tensor) -> None:
    """Serve `rrgkern::policy_loss_from_logits_scale_`."""
    if not len(active):
        return
    block = 2 * 32 * SCALE_WARPS * 16 // gradient.element_size()
    policy_loss_from_logits_scale_kernel[(min(len(active), SCALE_PROGRAMS),)](
        gradient,
        active,
        factor,
        *row_walk(gradient),
        len(active),
        VOCABULARY=gradient.shape[-1],
        WIDE=_wide(gradient),
        BLOCK=block,
        **launch_options(SCALE_WARPS),
    )


def _wide(logits: Tensor) -> tl.dtype:
    return tl.float64 if stats_dtype(logits.dtype) == torch.float64 else tl.float32


def _finished(partials: Tensor, active: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    loss = active.new_empty((), dtype=dtype)
    metrics = active.new_empty(len(METRICS), dtype=dtype)
    finish(partials, loss, metrics)
    return loss, metrics
