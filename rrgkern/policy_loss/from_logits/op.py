"""The dispatcher: `rrgkern::grpo_loss_fwd`, its in-place form, and the upstream gradient's factor.

Without register_autograd: the gradient is an output here, and `autograd.py` hands it over.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.dispatch import register_triton
from rrgkern.logps.online_softmax import stats_dtype
from rrgkern.policy_loss.from_logits import cpu_kernels
from rrgkern.policy_loss.reference import METRICS


@torch.library.custom_op("rrgkern::grpo_loss_fwd", mutates_args=())
def grpo_loss_fwd(
    logits: Tensor,
    targets: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    scale: Tensor,
    old: Tensor | None,
    ref: Tensor | None,
    sampler: Tensor | None,
    weight: Tensor | None,
    on_policy: Tensor | None,
    mask: Tensor | None,
    advantage_per_token: bool,
    scale_per_token: bool,
    temperature: float,
    entropy: bool,
    spec: str,
    with_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss 0-d, gradient as the logits or size 0, active [N] bool, metrics [len(METRICS)]."""
    tensors = (advantages, offsets, scale, old, ref, sampler, weight, on_policy, mask)
    options = (advantage_per_token, scale_per_token, temperature, entropy, spec)
    where = "new" if with_gradient else "none"
    return cpu_kernels.loss_and_gradient(logits, targets, *tensors, *options, where)


@grpo_loss_fwd.register_fake
def _(
    logits: Tensor,
    targets: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    scale: Tensor,
    old: Tensor | None,
    ref: Tensor | None,
    sampler: Tensor | None,
    weight: Tensor | None,
    on_policy: Tensor | None,
    mask: Tensor | None,
    advantage_per_token: bool,
    scale_per_token: bool,
    temperature: float,
    entropy: bool,
    spec: str,
    with_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    loss, active, metrics = _fake_results(logits, targets)
    return loss, logits.new_empty(logits.shape if with_gradient else 0), active, metrics


@torch.library.custom_op("rrgkern::grpo_loss_fwd_", mutates_args=("logits",))
def grpo_loss_fwd_(
    logits: Tensor,
    targets: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    scale: Tensor,
    old: Tensor | None,
    ref: Tensor | None,
    sampler: Tensor | None,
    weight: Tensor | None,
    on_policy: Tensor | None,
    mask: Tensor | None,
    advantage_per_token: bool,
    scale_per_token: bool,
    temperature: float,
    entropy: bool,
    spec: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss 0-d, active [N] bool, metrics; the logits become their gradient."""
    tensors = (advantages, offsets, scale, old, ref, sampler, weight, on_policy, mask)
    options = (advantage_per_token, scale_per_token, temperature, entropy, spec)
    loss, _, active, metrics = cpu_kernels.loss_and_gradient(
        logits, targets, *tensors, *options, "inplace"
    )
    return loss, active, metrics


@grpo_loss_fwd_.register_fake
def _(
    logits: Tensor,
    targets: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    scale: Tensor,
    old: Tensor | None,
    ref: Tensor | None,
    sampler: Tensor | None,
    weight: Tensor | None,
    on_policy: Tensor | None,
    mask: Tensor | None,
    advantage_per_token: bool,
    scale_per_token: bool,
    temperature: float,
    entropy: bool,
    spec: str,
) -> tuple[Tensor, Tensor, Tensor]:
    return _fake_results(logits, targets)


def _fake_results(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dtype = stats_dtype(logits.dtype)
    active = torch.empty_like(targets, dtype=torch.bool)
    return logits.new_empty((), dtype=dtype), active, logits.new_empty(len(METRICS), dtype=dtype)


@torch.library.custom_op("rrgkern::grpo_loss_scale_", mutates_args=("gradient",))
def grpo_loss_scale_(gradient: Tensor, active: Tensor, factor: Tensor) -> None:
    """Multiply the active rows of the gradient by `factor`, 0-d, which is read on the device."""
    cpu_kernels.scale_rows(gradient, active, factor)


@grpo_loss_scale_.register_fake
def _(gradient: Tensor, active: Tensor, factor: Tensor) -> None:
    return None


register_triton(grpo_loss_fwd, "rrgkern.policy_loss.from_logits.triton_kernels", "grpo_loss_fwd")
register_triton(grpo_loss_fwd_, "rrgkern.policy_loss.from_logits.triton_kernels", "grpo_loss_fwd_")
register_triton(
    grpo_loss_scale_, "rrgkern.policy_loss.from_logits.triton_kernels", "grpo_loss_scale_"
)
