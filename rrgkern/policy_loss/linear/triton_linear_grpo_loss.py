"""The forward of each mode with Triton between the products; serves CUDA."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.logps.head import NeedsGrad
from rrgkern.logps.triton_from_hidden import TILES, head_of
from rrgkern.policy_loss.linear import forward as compute
from rrgkern.policy_loss.linear import triton_kernels
from rrgkern.policy_loss.linear.plan import Plan
from rrgkern.policy_loss.linear.policy import Policy

# The gradient in the forward keeps at most 560 MiB of fp32 logits: 960 rows of V = 151,936.
PLAN = Plan(TILES, 140 << 20, triton_kernels)


def fwd(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    scale: Tensor,
    old: Tensor | None,
    ref: Tensor | None,
    sampler: Tensor | None,
    token_weight: Tensor | None,
    on_policy: Tensor | None,
    mask: Tensor | None,
    advantage_per_token: bool,
    scale_per_token: bool,
    spec: str,
    temperature: float,
    softcap: float,
    mode: str,
    want_hidden: bool,
    want_weight: bool,
    want_bias: bool,
    entropy: bool,
    all_metrics: bool,
) -> compute.Forward:
    """Serve `rrgkern::linear_grpo_loss_fwd`."""
    policy = Policy(
        *(advantages, offsets, scale, old, ref, sampler, token_weight, on_policy, mask),
        *(advantage_per_token, scale_per_token, spec),
    )
    return compute.forward(
        hidden,
        targets.contiguous(),
        head_of(weight, bias, temperature, softcap),
        policy,
        mode,
        NeedsGrad(want_hidden, want_weight, want_bias),
        entropy,
        all_metrics,
        PLAN,
    )


def scale(
    grad_loss: Tensor, d_hidden: Tensor, d_weight: Tensor, d_bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Serve `rrgkern::linear_grpo_loss_scale`."""
    scaled = [torch.empty_like(gradient) for gradient in (d_hidden, d_weight, d_bias)]
    for gradient, out in zip((d_hidden, d_weight, d_bias), scaled, strict=True):
        triton_kernels.scale(gradient.contiguous(), grad_loss, out)
    return scaled[0], scaled[1], scaled[2]


def scale_(grad_loss: Tensor, d_hidden: Tensor, d_weight: Tensor, d_bias: Tensor) -> None:
    """Serve `rrgkern::linear_grpo_loss_scale_`."""
    for gradient in (d_hidden, d_weight, d_bias):
        triton_kernels.scale(gradient, grad_loss, gradient)
