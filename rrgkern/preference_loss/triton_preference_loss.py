"""The preference loss on the GPU: sequences, then their tokens, then the sums."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rrgkern.ops import pack
from rrgkern.preference_loss.inputs import PreferenceInputs
from rrgkern.preference_loss.reference import METRICS
from rrgkern.triton_lib.math import sigmoid, softplus

# A report is 100 to 300 tokens long, and a step holds 36 to a few hundred pairs.
TOKENS_PER_STEP = 256
PAIRS_PER_STEP = 128
NUM_WARPS = 4

# A number a token, sequence or pair. Slices of a larger batch share one compilation.
ARGUMENT_POINTERS = (
    *("logps_ptr", "ref_ptr", "offsets_ptr", "mask_ptr"),
    *("positive_ptr", "negative_ptr", "weight_ptr"),
)


@triton.jit(do_not_specialize_on_alignment=ARGUMENT_POINTERS)
def preference_rewards_kernel(
    logps_ptr,
    ref_ptr,
    offsets_ptr,
    mask_ptr,
    reward_ptr,
    divisor_ptr,
    tau: tl.float64,
    LENGTH_NORMALIZED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Implicit reward of one sequence in fp64: tau Σ(logp - ref) over its divisor.

    Tokens are added in a fixed order.
    """
    sequence = tl.program_id(0).to(tl.int64)
    start = tl.load(offsets_ptr + sequence)
    end = tl.load(offsets_ptr + sequence + 1)
    lane = tl.arange(0, BLOCK)
    gains = tl.zeros([BLOCK], tl.float64)
    counts = tl.zeros([BLOCK], tl.int64)
    first = start
    while first < end:
        token = first + lane
        inside = token < end
        keep = inside
        if mask_ptr is not None:
            keep = keep & (tl.load(mask_ptr + token, mask=inside, other=0) != 0)
        # Selected after the load: with one token's mask on one token's load, none could be wide.
        logps = tl.where(keep, tl.load(logps_ptr + token, mask=inside, other=0.0), 0.0)
        ref = tl.where(keep, tl.load(ref_ptr + token, mask=inside, other=0.0), 0.0)
        gains += logps.to(tl.float64) - ref.to(tl.float64)
        counts += keep.to(tl.int64)
        first += BLOCK
    divisor = tl.full((), 1.0, tl.float64)
    if LENGTH_NORMALIZED:
        divisor = tl.maximum(tl.sum(counts), 1).to(tl.float64)
    tl.store(reward_ptr + sequence, tau * tl.sum(gains) / divisor)
    tl.store(divisor_ptr + sequence, divisor)


@triton.jit
def _load_pairs(positive_ptr, negative_ptr, weight_ptr, reward_ptr, pair, n_pairs):
    """Both sequences, weight and rewards of a pair a lane; which pairs take part."""
    weight = tl.load(weight_ptr + pair, mask=pair < n_pairs, other=0.0).to(tl.float64)
    live = weight != 0
    positive = tl.load(positive_ptr + pair, mask=live, other=0)
    negative = tl.load(negative_ptr + pair, mask=live, other=0)
    upper = tl.load(reward_ptr + positive, mask=live, other=0.0)
    lower = tl.load(reward_ptr + negative, mask=live, other=0.0)
    return positive, negative, weight, upper, lower, live


@triton.jit(do_not_specialize=["n_pairs"], do_not_specialize_on_alignment=ARGUMENT_POINTERS)
def preference_coef_kernel(
    offsets_ptr,
    mask_ptr,
    positive_ptr,
    negative_ptr,
    weight_ptr,
    reward_ptr,
    divisor_ptr,
    advantages_ptr,
    coef_ptr,
    n_pairs,
    tau: tl.float64,
    PAIRS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Advantage of one sequence from its pairs, and the gradient of its tokens.

    Every program looks at every pair: no atomics, so the order of the sum is fixed, and no
    assumption on the order of the pairs.
    """
    sequence = tl.program_id(0).to(tl.int64)
    # 1. Advantage: the pull of every pair that names the sequence.
    pulls = tl.zeros([PAIRS], tl.float64)
    pair = tl.arange(0, PAIRS).to(tl.int64)
    first = 0
    while first < n_pairs:
        positive, negative, weight, upper, lower, live = _load_pairs(
            positive_ptr, negative_ptr, weight_ptr, reward_ptr, pair, n_pairs
        )
        pull = weight * sigmoid(lower - upper)
        pulls += tl.where(live & (positive == sequence), pull, 0.0)
        pulls -= tl.where(live & (negative == sequence), pull, 0.0)
        pair += PAIRS
        first += PAIRS
    advantage = tau * tl.sum(pulls)
    tl.store(advantages_ptr + sequence, advantage.to(advantages_ptr.dtype.element_ty))

    # 2. Gradient of its tokens.
    coef = (-advantage / tl.load(divisor_ptr + sequence)).to(coef_ptr.dtype.element_ty)
    end = tl.load(offsets_ptr + sequence + 1)
    token = tl.load(offsets_ptr + sequence) + tl.arange(0, BLOCK)
    while tl.min(token) < end:
        inside = token < end
        keep = inside
        if mask_ptr is not None:
            keep = keep & (tl.load(mask_ptr + token, mask=inside, other=0) != 0)
        tl.store(coef_ptr + token, tl.where(keep, coef, 0.0), mask=inside)
        token += BLOCK


@triton.jit(do_not_specialize=["n_pairs"], do_not_specialize_on_alignment=ARGUMENT_POINTERS)
def preference_finish_kernel(
    positive_ptr,
    negative_ptr,
    weight_ptr,
    reward_ptr,
    loss_ptr,
    metrics_ptr,
    n_pairs,
    PAIRS: tl.constexpr,
):
    """Loss and metrics, in a fixed order: one program."""
    # 1. Sums over the pairs, a lane each.
    loss = tl.zeros([PAIRS], tl.float64)
    uppers = tl.zeros([PAIRS], tl.float64)
    lowers = tl.zeros([PAIRS], tl.float64)
    margins = tl.zeros([PAIRS], tl.float64)
    right = tl.zeros([PAIRS], tl.int64)
    count = tl.zeros([PAIRS], tl.int64)
    pair = tl.arange(0, PAIRS).to(tl.int64)
    first = 0
    while first < n_pairs:
        _, _, weight, upper, lower, live = _load_pairs(
            positive_ptr, negative_ptr, weight_ptr, reward_ptr, pair, n_pairs
        )
        loss += tl.where(live, weight * softplus(lower - upper), 0.0)
        uppers += upper
        lowers += lower
        margins += upper - lower
        right += (upper > lower).to(tl.int64)
        count += live.to(tl.int64)
        pair += PAIRS
        first += PAIRS
    # 2. Means over the pairs with weight.
    dtype = loss_ptr.dtype.element_ty
    pairs = tl.sum(count)
    some = tl.maximum(pairs, 1).to(tl.float64)
    tl.store(loss_ptr, tl.sum(loss).to(dtype))
    # In the order of reference.METRICS.
    tl.store(metrics_ptr, (tl.sum(margins) / some).to(dtype))
    tl.store(metrics_ptr + 1, (tl.sum(right).to(tl.float64) / some).to(dtype))
    tl.store(metrics_ptr + 2, (tl.sum(uppers) / some).to(dtype))
    tl.store(metrics_ptr + 3, (tl.sum(lowers) / some).to(dtype))
    tl.store(metrics_ptr + 4, pairs.to(dtype))


def launch(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Serve `rrgkern::preference_loss_fwd`; arguments and results are those of the op."""
    logps, ref, offsets, pairs, mask, tau, length_normalized = pack(PreferenceInputs, inputs)
    positive, negative, weight = pairs
    n_sequences, n_pairs = offsets.numel() - 1, positive.numel()
    coef, advantages = torch.empty_like(logps), logps.new_empty(n_sequences)
    loss, metrics = logps.new_empty(()), logps.new_empty(len(METRICS))
    # Two allocations: the second row of one would be aligned for even numbers of sequences only,
    # which are two compilations.
    reward = logps.new_empty(n_sequences, dtype=torch.float64)
    divisor = torch.empty_like(reward)
    if n_sequences:
        preference_rewards_kernel[(n_sequences,)](
            logps,
            ref,
            offsets,
            mask,
            reward,
            divisor,
            tau,
            LENGTH_NORMALIZED=length_normalized,
            BLOCK=TOKENS_PER_STEP,
            num_warps=NUM_WARPS,
        )
        preference_coef_kernel[(n_sequences,)](
            offsets,
            mask,
            positive,
            negative,
            weight,
            reward,
            divisor,
            advantages,
            coef,
            n_pairs,
            tau,
            PAIRS=PAIRS_PER_STEP,
            BLOCK=TOKENS_PER_STEP,
            num_warps=NUM_WARPS,
        )
    preference_finish_kernel[(1,)](
        positive,
        negative,
        weight,
        reward,
        loss,
        metrics,
        n_pairs,
        PAIRS=PAIRS_PER_STEP,
        num_warps=NUM_WARPS,
    )
    return loss, coef, advantages, metrics
