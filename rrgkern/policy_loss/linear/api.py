"""Compute the policy loss from hidden states: the public function and its modes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rrgkern.checks import check_derivatives, check_flags, functorch_level, is_sharded
from rrgkern.logps.head import NeedsGrad
from rrgkern.logps.inputs import check_head
from rrgkern.logps.online_softmax import stats_dtype
from rrgkern.ops import flatten
from rrgkern.padded import hidden_rows
from rrgkern.policy_loss.api import DEFAULT, PolicyLossOutput
from rrgkern.policy_loss.inputs import PolicyInputs, check_inputs, check_types
from rrgkern.policy_loss.linear.autograd import LossInPlace, LossIntoGrad, check_accumulates
from rrgkern.policy_loss.linear.inputs import LinearInputs
from rrgkern.policy_loss.linear.op import loss_of_hidden
from rrgkern.policy_loss.spec import PolicyLoss

MODES = ("frozen_head", "grad_in_forward", "recompute")
# Operations of 16-bit products that a multiprocessor begins in a clock, by compute capability.
PRODUCTS = {
    **dict.fromkeys([(8, 6), (8, 9), (12, 0), (12, 1)], 1024),
    **{(8, 0): 2048, (9, 0): 4096, (10, 0): 8192, (10, 3): 8192},
}
# What an H100 reached of them and of its memory's clocks (bench/ceilings.py).
REACHED = 0.74 / 0.90
# On CPUs, and in fp32 and fp64: below, forming the logits again takes less than the sums of dW.
LEAST_ROWS_WIDE = 1024


def linear_policy_loss(  # noqa: PLR0913
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    advantages: Tensor,
    offsets: Tensor | None = None,
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
    are chosen between (README). The ratio is exactly 1 where `old` is None. Derivatives are those
    of `policy_loss`: the first of hidden, weight and bias, by autograd.

    Args:
        hidden: [N, H] or [B, T, H], fp16, bf16, fp32 or fp64; row t predicts targets[t]. With a
            mask `hidden[:, :-1]` is read where it lies, else its rows are copied.
        weight: [V, H], the dtype of `hidden`, or fp32 under 16-bit states: it is then rounded to
            their dtype slice by slice, and its gradient is fp32. A DTensor (FSDP2) is gathered, and
            its gradient averaged over the ranks.
        targets: [N] or [B, T] int64, each in [0, V) where `mask` is True.
        advantages, offsets, scale, old, ref, sampler, token_weight, on_policy, mask, spec: as in
            `policy_loss`. What stands in masked rows changes nothing, NaN in `hidden` included.
        bias: [V] or None, the dtype of `hidden`, or fp32 under 16-bit states.
        softcap: logits are softcap * tanh(z / softcap), before the temperature; None for none.
        temperature: T > 0, a run-time value.
        mode: "frozen_head" (neither weight nor bias requires a gradient, no entropy in the loss),
            "grad_in_forward" (variants whose tokens do not depend on each other; not fp16),
            "recompute", the only one under torch.vmap, or "auto" for the README's rule.
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
        TypeError: a dtype or an option's type is wrong, or `hidden` is a DTensor.
        ValueError: a shape, device or option does not fit, a tensor that `spec` needs is missing,
            a mode cannot serve, or, on CPU or with RRGKERN_CHECK=1, offsets do not run from 0 to N.
        IndexError: a scored target outside [0, V) (on CUDA a device assertion, see RRGKERN_CHECK).
        RuntimeError: a second backward in mode "frozen_head" or "grad_in_forward".
    """
    spec = DEFAULT if spec is None else spec
    if not isinstance(spec, PolicyLoss):
        raise PolicyLoss.unlike(spec)
    policy = PolicyInputs(
        *(advantages, offsets, scale, old, ref, sampler, token_weight, on_policy, mask),  # type: ignore[arg-type]
        spec=spec.encode(),
    )
    check_types(policy, hidden=hidden, weight=weight, targets=targets, optional={"bias": bias})
    check_flags(entropy=entropy, accumulate_weight_grad=accumulate_weight_grad)
    check_derivatives(hidden=hidden, weight=weight, bias=bias)
    if hidden.ndim != (3 if offsets is None and hidden.ndim != 2 else 2):
        raise ValueError(
            f"hidden is {list(hidden.shape)}, wanted [N, H] with offsets, [B, T, H] without"
        )
    if metrics not in ("scored", "computed"):
        raise ValueError(f"metrics is {metrics!r}; choose one of 'scored', 'computed'")
    if accumulate_weight_grad and is_sharded(weight):
        raise ValueError(
            "accumulate_weight_grad is True and weight is a DTensor, whose gradient FSDP2 averages "
            "over the ranks: leave accumulate_weight_grad False"
        )
    weight, bias = check_head(hidden, weight, targets, bias, temperature, softcap)
    hidden, tokens = hidden_rows(hidden, masked=mask is not None)
    policy = policy.packed(tokens, hidden.device)
    targets = tokens.flat("targets", targets)
    check_inputs(policy, spec, "hidden", hidden, tokens.total)
    tracked = torch.is_grad_enabled()
    needs_grad = NeedsGrad(
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
        hidden,
        needs_grad,
        sampler=sampler is not None,
        accumulate_weight_grad=accumulate_weight_grad,
    )
    inputs = flatten(
        LinearInputs(
            *(hidden, weight, bias, targets, policy.prepared(stats_dtype(hidden.dtype))),
            *(float(temperature), float(softcap or 0.0), chosen),
            *needs_grad,
            entropy=entropy or spec.entropy_coef != 0,
            all_metrics=metrics == "scored",
        )
    )
    if accumulate_weight_grad:
        loss, values = LossIntoGrad.apply(*inputs)
    elif chosen != "recompute" and not torch.compiler.is_compiling():
        if functorch_level() is not None:
            raise NotImplementedError(
                f"mode is {chosen!r} under torch.vmap or torch.func, which know no way to what its "
                "forward leaves behind: choose 'recompute'"
            )
        loss, values = LossInPlace.apply(*inputs)
    else:
        loss, values = loss_of_hidden(*inputs)
    return PolicyLossOutput.of(loss, values)


def choose_mode(
    mode: str,
    spec: PolicyLoss,
    hidden: Tensor,
    needs_grad: NeedsGrad,
    *,
    sampler: bool,
    accumulate_weight_grad: bool = False,
) -> str:
    """One of MODES, for "auto" by the rule of the README.

    Raises:
        ValueError: `mode` is unknown, or cannot serve what is asked.
    """
    if mode not in ("auto", *MODES):
        names = ", ".join(map(repr, ("auto", *MODES)))
        raise ValueError(f"mode is {mode!r}; choose one of {names}")
    tied, half = spec.ties_tokens(sampler), hidden.dtype == torch.float16
    frozen = not (needs_grad.weight or needs_grad.bias)
    if accumulate_weight_grad and mode not in ("auto", "recompute"):
        raise ValueError(
            f"accumulate_weight_grad is True with mode {mode!r}; only 'recompute' finishes the "
            "weight's gradient slice by slice: choose it, or leave the mode 'auto'"
        )
    if mode == "frozen_head" and not frozen:
        part = "weight" if needs_grad.weight else "bias"
        raise ValueError(
            f"mode is 'frozen_head' and {part} requires a gradient; freeze the head with "
            f"{part}.requires_grad_(False), or choose 'recompute'"
        )
    if mode == "frozen_head" and spec.entropy_coef:
        raise ValueError(
            f"mode is 'frozen_head' with entropy_coef {spec.entropy_coef}; the entropy's gradient "
            "would take as many products as 'recompute': choose that"
        )
    if mode == "grad_in_forward" and tied:
        raise ValueError(
            f"mode is 'grad_in_forward' with ratio_level {spec.ratio_level!r}, surrogate "
            f"{spec.surrogate!r} and sampler_level {spec.sampler_level!r}; one of them ties the "
            "tokens of a sequence, so no gradient is known before the last: choose 'recompute'"
        )
    if mode == "grad_in_forward" and half:
        raise ValueError(
            "mode is 'grad_in_forward' and hidden is torch.float16; the loss scale that keeps fp16 "
            "gradients above 6e-8 comes with the backward: choose 'recompute', or bfloat16"
        )
    if not any(needs_grad):
        return "recompute"  # whose forward is the log-probabilities and nothing else
    if mode != "auto":
        return mode
    if accumulate_weight_grad:
        return "recompute"
    if frozen and not spec.entropy_coef:
        return "frozen_head"
    if not (tied or half) and len(hidden) >= least_rows_in_forward(hidden):
        return "grad_in_forward"
    return "recompute"


def least_rows_in_forward(hidden: Tensor) -> float:
    """Rows from which grad_in_forward takes less time than recompute, README's N*.

    Each saves 2HV products and moves 12V bytes of logits; the fp32 gradient of the weight, 6VH
    bytes more than its slices, is there whatever their number.
    """
    if hidden.element_size() != 2 or hidden.device.type != "cuda":
        return LEAST_ROWS_WIDE
    width, balance = hidden.shape[1], operations_per_byte(hidden.device)
    gain = width - 6 * balance
    return 3 * width * balance / gain if gain > 0 else math.inf


def operations_per_byte(device: torch.device) -> float:
    """Divide a GPU's operations of 16-bit products by its bytes of memory.

    Infinite where `PRODUCTS` lacks it. Memory moves two bits a clock and line; clocks are in kHz.
    """
    card = torch.cuda.get_device_properties(device)
    operations = PRODUCTS.get((card.major, card.minor), math.inf)
    operations *= card.multi_processor_count * card.clock_rate
    return REACHED * operations / (card.memory_clock_rate * card.memory_bus_width / 4)
