"""Serve CPUs with csrc/policy_loss: coefficients and sums in one pass over the tokens."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.dispatch import announce_slow_path
from rrgkern.ops import pack
from rrgkern.policy_loss import spec as names
from rrgkern.policy_loss.inputs import LogpsInputs, PolicyInputs
from rrgkern.policy_loss.reference import METRICS, LossOutputs
from rrgkern.policy_loss.spec import PolicyLoss
from rrgkern.policy_loss.terms import sampler_bounds, surrogate_numbers

WIDE = (torch.float32, torch.float64)
# Stands for a tensor that is absent.
NOTHING = torch.empty(0, device="cpu")
# A loss and metrics of each dtype: `empty_like` of them takes less than `new_empty`.
LIKE = {
    d: tuple(torch.empty(size, dtype=d, device="cpu") for size in ((), len(METRICS))) for d in WIDE
}


def launch(*inputs: Any) -> LossOutputs:
    """Serve `rrgkern::policy_loss_fwd`; arguments and results are those of the reference."""
    return loss_and_coefficients(pack(LogpsInputs, inputs))


def loss_and_coefficients(call: LogpsInputs) -> LossOutputs:
    """The same from their record."""
    logps, entropy, policy = call
    outputs = empty_outputs(call)
    csrc.load().policy_loss_cpu(
        *(logps, NOTHING if entropy is None else entropy, *policy_arguments(policy)),
        *(*outputs, torch.get_num_threads()),
    )
    return outputs


def empty_outputs(call: LogpsInputs) -> LossOutputs:
    """Allocate what the op returns."""
    logps, entropy, policy = call
    bonus = entropy is not None and policy.variant.entropy_coef != 0
    return LossOutputs(
        loss=logps.new_empty(()),
        coef=torch.empty_like(logps),
        coef_entropy=torch.empty_like(logps) if bonus else logps.new_empty(0),
        metrics=logps.new_empty(len(METRICS)),
    )


def as_passed(
    logps: Tensor, entropy: Tensor | None, others: Sequence[Tensor | None], spec: PolicyLoss
) -> tuple[Tensor, Tensor, Tensor | None, Tensor] | None:
    """The same from what a caller passed; None where it is not ready.

    `others` are `PolicyInputs.tensors`. The checks of dtypes, lengths, gaps and offsets are in C++
    and say only yes or no. A coefficient of the entropy that is not in the loss is None.
    """
    like = LIKE.get(logps.dtype)
    call = getattr(csrc.load(), "policy_loss_as_passed_cpu", None)
    if call is None:
        reason = f"the compiled extension is older than csrc/policy_loss: re{csrc.HOW_TO_BUILD}"
        announce_slow_path("the checks of rrgkern::policy_loss_fwd", "cpu", reason)
    if like is None or call is None:
        return None
    loss, metrics = torch.empty_like(like[0]), torch.empty_like(like[1])
    coef, coef_entropy = torch.empty_like(logps), None
    if entropy is not None and spec.entropy_coef != 0:
        coef_entropy = torch.empty_like(logps)
    ready = call(
        *(logps, entropy, *others, packed_variant(spec.encode()), loss, coef),
        *(NOTHING if coef_entropy is None else coef_entropy, metrics, torch.get_num_threads()),
    )
    return (loss, coef, coef_entropy, metrics) if ready else None


def policy_arguments(policy: PolicyInputs) -> tuple[Tensor | bool, ...]:
    """List what the entry points take of a policy, as `prepared` made it."""
    tensors = [NOTHING if tensor is None else tensor for tensor in policy.tensors]
    flags = (policy.advantage_per_token, policy.scale_per_token)
    return *tensors, *flags, packed_variant(policy.spec)


@functools.lru_cache(maxsize=128)
def packed_variant(spec: str) -> Tensor:
    """Pack a variant into numbers, fp64, in the order in which C++ reads them."""
    variant = PolicyLoss.decode(spec)
    return torch.tensor(
        [
            names.SURROGATES.index(variant.surrogate),
            names.RATIO_LEVELS.index(variant.ratio_level),
            names.KLS.index(variant.kl),
            names.SAMPLER_MODES.index(variant.sampler_mode),
            names.SAMPLER_LEVELS.index(variant.sampler_level),
            variant.kl_ratio_weight and variant.beta != 0,
            *(variant.beta, variant.entropy_coef),
            *sampler_bounds(variant),
            *surrogate_numbers(variant),
        ],
        dtype=torch.float64,
        device="cpu",
    )
