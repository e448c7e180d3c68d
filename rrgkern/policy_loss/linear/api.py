"""`linear_policy_loss`: head, log-probabilities and policy loss in one, without the logits."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.checks import check_tensors
from rrgkern.logps.head import NeedsGrad
from rrgkern.logps.inputs import check_head, is_sharded
from rrgkern.logps.online_softmax import stats_dtype
from rrgkern.policy_loss.api import PolicyLossOutput
from rrgkern.policy_loss.linear.autograd import LossInPlace, LossIntoGrad, check_accumulates
from rrgkern.policy_loss.linear.checks import check_policy
from rrgkern.policy_loss.linear.modes import choose_mode
from rrgkern.policy_loss.linear.op import linear_grpo_loss_fwd
from rrgkern.policy_loss.reference import METRICS
from rrgkern.policy_loss.spec import PolicyLoss

DEFAULT = PolicyLoss()


def linear_policy_loss(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    *,
    scale: Tensor,
    bias: Tensor | None = None,
    softcap: float | None = None,
    temperature: float = 1.0,
    old: Tensor | None = None,
    ref: Tensor | None = None,
    sampler: Tensor | None = None,
    token_weight: Tensor | None = None,
    on_policy: Tensor | None = None,
    mask: Tensor | None = None,
    spec: PolicyLoss | None = None,
    mode: str = "auto",
    accumulate_weight_grad: bool = False,
    entropy: bool = False,
    metrics: str = "scored",
) -> PolicyLossOutput:
    """`policy_loss` of the log-probabilities of `linear_token_logps`, [N, V] never in memory.

    Equal to the two functions one after the other, in fewer products: rows that are masked, or
    that no gradient can reach, are never multiplied with the head, and three ways to the gradient
    are chosen between (README). The ratio is exactly 1 where `old` is None.

    Args:
        hidden: [N, H], fp16, bf16, fp32 or fp64; row t predicts targets[t].
        weight: [V, H], the dtype and device of `hidden`. A DTensor (FSDP2) is gathered, and its
            gradient averaged over the ranks.
        targets: [N] int64, each in [0, V) where `mask` is True.
        advantages, offsets, scale, old, ref, sampler, on_policy, mask, spec: as in `policy_loss`,
            `token_weight` being its `weight`. What stands in masked rows changes nothing, NaN in
            `hidden` included.
        bias: [V] or None, the dtype of `hidden`.
        softcap: logits are softcap * tanh(z / softcap), before the temperature; None for none.
        temperature: T > 0, a run-time value.
        mode: "frozen_head" (neither weight nor bias requires a gradient, no entropy in the loss),
            "grad_in_forward" (variants whose tokens do not depend on each other; not fp16),
            "recompute", or "auto" for the README's rule.
        accumulate_weight_grad: the backward adds the weight's gradient to `weight.grad` slice by
            slice, so that no second [V, H] exists; mode "recompute" only. Not under
            torch.compile, DDP or FSDP2, whose hooks would not fire. Any backward through the
            loss adds, `torch.autograd.grad` too.
        entropy: also report the mean entropy; done anyway when spec.entropy_coef is not 0.
        metrics: "scored", as `policy_loss` returns them; rows that no gradient can reach are then
            computed where a metric depends on them, which is where `old` or `ref` is given or the
            entropy is reported. "computed" never computes them, and all metrics are of the rows
            that were computed.

    Returns:
        `PolicyLossOutput(loss, metrics)`. In "frozen_head" and "grad_in_forward" the backward
        scales the gradients in place, and a second one through the same loss raises.

    Raises:
        TypeError: a dtype is wrong, or `hidden` is a DTensor.
        ValueError: a shape, device or option does not fit, a tensor that `spec` needs is missing,
            a mode cannot serve, or, on CPU or with RRGKERN_CHECK=1, offsets do not run from 0 to N.
        IndexError: a scored target outside [0, V) (on CUDA a device assertion, see RRGKERN_CHECK).
    """
    check_tensors(
        hidden=hidden,
        weight=weight,
        targets=targets,
        advantages=advantages,
        offsets=offsets,
        scale=scale,
        optional={
            "bias": bias,
            "old": old,
            "ref": ref,
            "sampler": sampler,
            "token_weight": token_weight,
            "on_policy": on_policy,
            "mask": mask,
        },
    )
    spec = DEFAULT if spec is None else spec
    if hidden.ndim != 2:
        raise ValueError(f"hidden is {list(hidden.shape)}, wanted [N, H]: hidden.flatten(0, -2)")
    if metrics not in ("scored", "computed"):
        raise ValueError(f"metrics is {metrics!r}; choose one of 'scored', 'computed'")
    if accumulate_weight_grad and is_sharded(weight):
        raise ValueError(
            "accumulate_weight_grad is True and weight is a DTensor, whose gradient FSDP2 averages "
            "over the ranks: leave accumulate_weight_grad False"
        )
    weight, bias = check_head(hidden, weight, targets, bias, temperature, softcap)
    check_policy(
        hidden,
        offsets,
        {
            "advantages": advantages,
            "scale": scale,
            "old": old,
            "ref": ref,
            "sampler": sampler,
            "token_weight": token_weight,
        },
        {"on_policy": (on_policy, "[S]"), "mask": (mask, "[N]")},
        spec,
    )
    tracked = torch.is_grad_enabled()
    wanted = NeedsGrad(
        tracked and hidden.requires_grad,
        tracked and weight.requires_grad,
        tracked and bias is not None and bias.requires_grad,
    )
    accumulate_weight_grad = accumulate_weight_grad and tracked
    if accumulate_weight_grad:
        check_accumulates(weight)
    chosen = choose_mode(
        mode,
        spec,
        wanted=wanted,
        sampler=sampler is not None,
        rows=hidden.shape[0],
        half=hidden.dtype == torch.float16,
        accumulate_weight_grad=accumulate_weight_grad,
    )

    dtype, sequences = stats_dtype(hidden.dtype), offsets.numel() - 1
    inputs = (
        *(hidden, weight, bias, targets),
        _constant(advantages, dtype),
        offsets.contiguous(),
        _constant(scale, dtype),
        *(None if x is None else _constant(x, dtype) for x in (old, ref, sampler, token_weight)),
        *(None if x is None else x.contiguous() for x in (on_policy, mask)),
        *(advantages.numel() != sequences, scale.numel() != sequences),
        *(spec.encode(), float(temperature), float(softcap or 0.0), chosen, *wanted),
        *(entropy or spec.entropy_coef != 0, metrics == "scored"),
    )
    if accumulate_weight_grad:
        loss, values = LossIntoGrad.apply(*inputs)
    elif chosen != "recompute" and not torch.compiler.is_compiling():
        loss, values = LossInPlace.apply(*inputs)
    else:
        loss, values = linear_grpo_loss_fwd(*inputs)[:2]
    return PolicyLossOutput(loss, dict(zip(METRICS, values.detach().unbind(0), strict=True)))


def _constant(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.detach().to(dtype).contiguous()
