"""Serve the loss from hidden states on CUDA, with Triton between the products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern.logps.triton_from_hidden import TILES, head_of
from rrgkern.ops import pack
from rrgkern.policy_loss.linear import triton_kernels
from rrgkern.policy_loss.linear.forward import Forward, forward
from rrgkern.policy_loss.linear.gradients import Plan
from rrgkern.policy_loss.linear.inputs import LinearInputs

# The gradient in the forward keeps at most 1.16 GiB of fp32 logits: 2048 rows of V = 151,936. Each
# block of rows reads and writes the fp32 gradient of the weight once more.
PLAN = Plan(TILES, 297 << 20, triton_kernels)


def fwd(*inputs: Any) -> Forward:
    """Serve `rrgkern::linear_policy_loss_fwd`."""
    call = pack(LinearInputs, inputs)
    head = head_of(call.rows)
    return forward(call._replace(targets=call.targets.contiguous()), head, PLAN)


def scale(
    grad_loss: Tensor, d_hidden: Tensor, d_weight: Tensor, d_bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Serve `rrgkern::linear_policy_loss_scale`."""
    scaled = [torch.empty_like(gradient) for gradient in (d_hidden, d_weight, d_bias)]
    for gradient, out in zip((d_hidden, d_weight, d_bias), scaled, strict=True):
        triton_kernels.scale(gradient.contiguous(), grad_loss, out)
    return scaled[0], scaled[1], scaled[2]


def scale_(grad_loss: Tensor, d_hidden: Tensor, d_weight: Tensor, d_bias: Tensor) -> None:
    """Serve `rrgkern::linear_policy_loss_scale_`."""
    for gradient in (d_hidden, d_weight, d_bias):
        triton_kernels.scale(gradient, grad_loss, gradient)
