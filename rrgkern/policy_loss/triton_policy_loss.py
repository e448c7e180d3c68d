"""Launch the passes of the policy loss."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor

from rrgkern.ops import pack
from rrgkern.policy_loss.inputs import LogpsInputs
from rrgkern.policy_loss.reference import METRICS, LossOutputs
from rrgkern.policy_loss.terms import sampler_bounds, surrogate_numbers
from rrgkern.policy_loss.triton_passes import policy_loss_sequence_kernel, policy_loss_token_kernel
from rrgkern.triton_lib import launch_options
from rrgkern.triton_lib import policy as codes
from rrgkern.triton_lib.policy_sums import ROWS, policy_finish_kernel

# Two tokens a thread: at four, the arithmetic of a token needs so many registers that a third of
# the warps fit, and a step of 48,000 tokens would not even fill the multiprocessors.
TOKENS_PER_PROGRAM = 256
# A report is 100 to 300 tokens long.
TOKENS_PER_STEP = 256
PARTIALS_PER_STEP = 256
NUM_WARPS = 4
# 28 of 64 warps fit. Left alone, or held to 64, the assembler spills in some variants.
MAX_REGISTERS = 72


def launch(*inputs: Any) -> LossOutputs:
    """Serve `rrgkern::policy_loss_fwd`; arguments and results are those of the reference."""
    logps, entropy, policy = pack(LogpsInputs, inputs)
    variant = policy.variant
    n_tokens, n_sequences = logps.numel(), policy.offsets.numel() - 1
    level = "token" if policy.sampler is None else variant.sampler_level
    entropy_in_loss = entropy is not None and variant.entropy_coef != 0

    coef = torch.empty_like(logps)
    coef_entropy = torch.empty_like(logps) if entropy_in_loss else logps.new_empty(0)
    loss, metrics = logps.new_empty(()), logps.new_empty(len(METRICS))
    bounds, numbers = sampler_bounds(variant), surrogate_numbers(variant)
    variant_codes = {
        "SURROGATE": codes.SURROGATE_CODES[variant.surrogate],
        "LEVEL": codes.LEVEL_CODES[variant.ratio_level],
        "KL": codes.KL_CODES[variant.kl],
        "SAMPLER_PER_SEQUENCE": codes.SAMPLER_CODES[level],
        "SAMPLER_MODE": codes.MODE_CODES[variant.sampler_mode],
        "ADVANTAGE_PER_TOKEN": policy.advantage_per_token,
        "SCALE_PER_TOKEN": policy.scale_per_token,
    }
    weighted = variant.kl_ratio_weight and variant.beta != 0

    tied = policy.ties_tokens
    log_ratio, log_correction, pulled = (
        logps.new_empty(n_sequences) if tied else None for _ in range(3)
    )
    if tied and n_sequences:
        policy_loss_sequence_kernel[(n_sequences,)](
            logps,
            *policy.tensors,
            log_ratio,
            log_correction,
            pulled,
            variant.beta,
            *bounds,
            *map(_log, bounds),
            *numbers,
            KL_IN_RATIO=weighted,
            BLOCK=TOKENS_PER_STEP,
            **launch_options(NUM_WARPS, MAX_REGISTERS),
            **variant_codes,
        )

    n_blocks = triton.cdiv(n_tokens, TOKENS_PER_PROGRAM)
    partials = torch.empty(ROWS.value, n_blocks, dtype=torch.float64, device=logps.device)
    if n_blocks:
        policy_loss_token_kernel[(n_blocks,)](
            logps,
            *policy.numbers,
            entropy,
            policy.on_policy,
            policy.mask,
            log_ratio,
            log_correction,
            pulled,
            coef,
            coef_entropy if entropy_in_loss else None,
            partials,
            n_tokens,
            n_sequences,
            n_sequences.bit_length(),
            variant.beta,
            variant.entropy_coef,
            *bounds,
            *numbers,
            KL_WEIGHTED=weighted,
            BLOCK=TOKENS_PER_PROGRAM,
            **launch_options(NUM_WARPS, MAX_REGISTERS),
            **variant_codes,
        )
    finish(partials, loss, metrics)
    return LossOutputs(loss, coef, coef_entropy, metrics)


def finish(partials: Tensor, loss: Tensor, metrics: Tensor) -> None:
    """Write loss and metrics, the sums over the columns of `partials` [ROWS, programs]."""
    policy_finish_kernel[(1,)](
        partials,
        partials.shape[1],
        loss,
        metrics,
        BLOCK=PARTIALS_PER_STEP,
        **launch_options(2 * NUM_WARPS),
    )


def _log(bound: float) -> float:
    return math.log(bound) if bound > 0 else -math.inf
