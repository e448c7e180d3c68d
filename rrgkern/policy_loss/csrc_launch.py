"""Serve CPUs with csrc/policy_loss: coefficients and sums in one pass over the tokens."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.ops import pack
from rrgkern.policy_loss.inputs import LogpsInputs, PolicyInputs
from rrgkern.policy_loss.reference import METRICS, LossOutputs
from rrgkern.policy_loss.spec import KLS, RATIO_LEVELS, SAMPLER_MODES, SURROGATES, PolicyLoss
from rrgkern.policy_loss.terms import sampler_bounds, surrogate_numbers

# Stands for a tensor that is absent.
NOTHING = torch.empty(0)


def launch(*inputs: Any) -> LossOutputs:
    """Serve `rrgkern::policy_loss_fwd`; arguments and results are those of the reference."""
    return loss_and_coefficients(pack(LogpsInputs, inputs))


def loss_and_coefficients(call: LogpsInputs) -> LossOutputs:
    """The same from their record."""
    logps, entropy, policy = call
    bonus = entropy is not None and policy.variant.entropy_coef != 0
    outputs = LossOutputs(
        loss=logps.new_empty(()),
        coef=torch.empty_like(logps),
        coef_entropy=torch.empty_like(logps) if bonus else logps.new_empty(0),
        metrics=logps.new_empty(len(METRICS)),
    )
    csrc.load().policy_loss_cpu(
        *(logps, NOTHING if entropy is None else entropy, *policy_arguments(policy)),
        *(*outputs, torch.get_num_threads()),
    )
    return outputs


def policy_arguments(policy: PolicyInputs) -> tuple[Any, ...]:
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
            SURROGATES.index(variant.surrogate),
            RATIO_LEVELS.index(variant.ratio_level),
            KLS.index(variant.kl),
            SAMPLER_MODES.index(variant.sampler_mode),
            variant.sampler_level == "sequence",
            variant.kl_ratio_weight and variant.beta != 0,
            *(variant.beta, variant.entropy_coef),
            *sampler_bounds(variant),
            *surrogate_numbers(variant),
        ],
        dtype=torch.float64,
    )
