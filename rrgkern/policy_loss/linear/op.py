"""The dispatcher: `rrgkern::linear_grpo_loss_fwd`, and the scaling that is its backward.

Only the backward of mode "recompute" is more: that of `linear_token_logps`, with the loss's
coefficients. `autograd.py` has the backwards that write where a copy would cost a whole [V, H].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern.dispatch import register_triton
from rrgkern.logps.head import Head, NeedsGrad
from rrgkern.logps.online_softmax import stats_dtype
from rrgkern.logps.op import CPU_TILES, linear_token_logps_bwd
from rrgkern.policy_loss.linear import cpu_kernels
from rrgkern.policy_loss.linear import forward as compute
from rrgkern.policy_loss.linear.plan import Plan
from rrgkern.policy_loss.linear.policy import Policy
from rrgkern.policy_loss.reference import METRICS
from rrgkern.policy_loss.spec import PolicyLoss

# The gradient in the forward keeps 64 MiB of fp32 logits.
CPU_PLAN = Plan(CPU_TILES, 1 << 24, cpu_kernels)
INPUTS = 24

# loss, metrics, coef, coef_entropy, logps, entropy, shift, lognorm, d_hidden, d_weight, d_bias
Outputs = tuple[
    Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor
]


Three = tuple[Tensor, Tensor, Tensor]


@torch.library.custom_op("rrgkern::linear_grpo_loss_fwd", mutates_args=())
def linear_grpo_loss_fwd(
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
) -> Outputs:
    """`compute.Forward`; what the mode does not need has size 0."""
    head = Head(weight, bias, temperature, softcap, operands=stats_dtype(weight.dtype))
    policy = Policy(
        *(advantages, offsets, scale, old, ref, sampler, token_weight, on_policy, mask),
        *(advantage_per_token, scale_per_token, spec),
    )
    wanted = NeedsGrad(want_hidden, want_weight, want_bias)
    return compute.forward(
        *(hidden, targets, head, policy, mode, wanted, entropy, all_metrics, CPU_PLAN)
    )


@linear_grpo_loss_fwd.register_fake
def _(
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
) -> Outputs:
    wide, again = stats_dtype(hidden.dtype), mode == "recompute"

    def per_row(asked: bool) -> Tensor:
        return hidden.new_empty(hidden.shape[0] if asked else 0, dtype=wide)

    def like(shape: torch.Size, asked: bool, dtype: torch.dtype = hidden.dtype) -> Tensor:
        return hidden.new_empty(shape if asked and not again else (0,), dtype=dtype)

    entropy_in_loss = PolicyLoss.decode(spec).entropy_coef != 0
    return (
        hidden.new_empty((), dtype=wide),
        hidden.new_empty(len(METRICS), dtype=wide),
        *(per_row(again), per_row(again and entropy_in_loss)),
        *(per_row(again), per_row(again and entropy), per_row(again), per_row(again)),
        like(hidden.shape, want_hidden, compute.gradient_dtype(hidden.dtype)),
        like(weight.shape, want_weight),
        like(weight.shape[:1], bias is not None and want_bias),
    )


@torch.library.custom_op("rrgkern::linear_grpo_loss_scale", mutates_args=())
def linear_grpo_loss_scale(
    grad_loss: Tensor, d_hidden: Tensor, d_weight: Tensor, d_bias: Tensor
) -> Three:
    """The gradients times `grad_loss`, 0-d, which is read on the device."""
    scaled = [torch.empty_like(gradient) for gradient in (d_hidden, d_weight, d_bias)]
    for gradient, out in zip((d_hidden, d_weight, d_bias), scaled, strict=True):
        cpu_kernels.scale(gradient, grad_loss, out)
    return scaled[0], scaled[1], scaled[2]


@linear_grpo_loss_scale.register_fake
def _(grad_loss: Tensor, d_hidden: Tensor, d_weight: Tensor, d_bias: Tensor) -> Three:
    return torch.empty_like(d_hidden), torch.empty_like(d_weight), torch.empty_like(d_bias)


@torch.library.custom_op(
    "rrgkern::linear_grpo_loss_scale_", mutates_args=("d_hidden", "d_weight", "d_bias")
)
def linear_grpo_loss_scale_(
    grad_loss: Tensor, d_hidden: Tensor, d_weight: Tensor, d_bias: Tensor
) -> None:
    """The same, in place."""
    for gradient in (d_hidden, d_weight, d_bias):
        cpu_kernels.scale(gradient, grad_loss, gradient)


@linear_grpo_loss_scale_.register_fake
def _(grad_loss: Tensor, d_hidden: Tensor, d_weight: Tensor, d_bias: Tensor) -> None:
    return None


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Outputs) -> None:
    hidden, weight, bias, targets = inputs[:4]
    ctx.temperature, ctx.softcap, ctx.mode = inputs[16:19]
    ctx.set_materialize_grads(False)
    ctx.dtype = hidden.dtype
    if ctx.mode == "recompute":
        ctx.save_for_backward(hidden, weight, bias, targets, *output[2:8])
    else:
        ctx.save_for_backward(*output[8:])


def _backward(ctx: Any, grad_loss: Tensor | None, *others: Tensor | None) -> Any:
    if grad_loss is None:
        return (None,) * INPUTS
    wanted = ctx.needs_input_grad[:3]
    if ctx.mode == "recompute":
        hidden, weight, bias, targets, coef, coef_entropy, *stats = ctx.saved_tensors
        gradients = linear_token_logps_bwd(
            coef * grad_loss,
            coef_entropy * grad_loss if len(coef_entropy) else None,
            *(hidden, weight, bias, targets, *stats, ctx.temperature, ctx.softcap, *wanted),
        )
    else:
        gradients = linear_grpo_loss_scale(grad_loss, *ctx.saved_tensors)
    returned = [
        g.to(ctx.dtype) if want else None for g, want in zip(gradients, wanted, strict=True)
    ]
    return *returned, *(None,) * (INPUTS - 3)


linear_grpo_loss_fwd.register_autograd(_backward, setup_context=_setup_context)
TRITON = "rrgkern.policy_loss.linear.triton_linear_grpo_loss"
register_triton(linear_grpo_loss_fwd, TRITON, "fwd")
register_triton(linear_grpo_loss_scale, TRITON, "scale")
register_triton(linear_grpo_loss_scale_, TRITON, "scale_")
