"""Compute the policy loss from logits: the public function."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern.checks import check_derivatives, check_flags, functorch_level
from rrgkern.logps.inputs import as_rows, check_logits
from rrgkern.logps.op import token_logps_fwd
from rrgkern.ops import flatten
from rrgkern.padded import Tokens
from rrgkern.policy_loss.api import DEFAULT, PolicyLossOutput
from rrgkern.policy_loss.from_logits.autograd import ComposedInPlace, Fused, fused
from rrgkern.policy_loss.from_logits.op import policy_loss_from_logits_fwd
from rrgkern.policy_loss.inputs import LogitsInputs, PolicyInputs, check_inputs, check_types
from rrgkern.policy_loss.op import loss_and_metrics
from rrgkern.policy_loss.spec import PolicyLoss


def policy_loss_from_logits(  # noqa: PLR0913
    logits: Tensor,
    targets: Tensor,
    advantages: Tensor,
    offsets: Tensor | None = None,
    *,
    scale: Tensor,
    old: Tensor | None = None,
    ref: Tensor | None = None,
    sampler: Tensor | None = None,
    token_weight: Tensor | None = None,
    mask: Tensor | None = None,
    on_policy: Tensor | None = None,
    temperature: float = 1.0,
    entropy: bool = False,
    spec: PolicyLoss | None = None,
    inplace: bool = False,
) -> PolicyLossOutput:
    """`policy_loss` of `token_logps`, with the gradient of the logits made in one pass.

    Where the coefficient of a token depends on that token alone (ratio level "token", any surrogate
    but "vespo", no sampler correction per sequence), the logits are read from memory once and their
    gradient is written once, in the forward. Everywhere else the two rooms are composed: the
    logits are read again in the backward.

    The backward multiplies the gradient by the upstream gradient, which is read on the device and
    costs nothing where it is 1: fold constants (accumulation steps, a loss scale for fp16) into
    `scale`. A gradient made in one pass or in place is given away by the first backward, and a
    second one raises. Derivatives are those of `policy_loss`: the first, by autograd.

    Args:
        logits: [..., V] fp16, bf16, fp32 or fp64, any strides; differentiable. N is the number of
            its rows, in the order of `targets.reshape(-1)`.
        targets: [...] int64, each in [0, V) where `mask` is True.
        advantages, offsets, scale, old, ref, sampler, token_weight, on_policy, spec: as in
            `policy_loss`.
        mask: [N] bool, True for a scored token. A row of the others is not read, NaN included, nor
            its target, and its gradient is exactly 0.
        temperature: T, 1e-30 to 1e30, a run-time value; the log-probabilities are those of
            logits / T.
        entropy: report the mean entropy as a metric. Always computed where entropy_coef is not 0.
        inplace: the logits may be overwritten by their gradient, so that no memory of their size is
            needed; they must not be read afterwards. Made in one pass that happens now, composed in
            the backward, and not at all where no gradient is asked for or under torch.compile,
            which places memory itself. Pass the model's whole logits, with `mask` False and any
            target at the last position: of `logits[:, :-1]` the gradient is as right, but autograd
            allocates zeros of the size of `logits` for it and copies. Whoever saved the logits for
            a backward of its own raises there (their version counter moves). Several calls may
            overwrite parts of one tensor, each a range of memory of its own: slices y[a:b], no
            views by chunk(), split() or unbind(), no interleaved rows.

    Returns:
        The loss, 0-d in fp32 (fp64 for fp64 logits), and the metrics of `policy_loss`.

    Raises:
        TypeError: a dtype is wrong, a DTensor, sparse or nested tensor, a temperature that is no
            single number, or a flag that is no bool.
        ValueError: a shape or device is wrong, a tensor that `spec` needs is missing, a temperature
            is out of range, `inplace` on a leaf or on rows that share memory, or logits that an
            earlier call has overwritten.
        IndexError: a target outside [0, V) (on CUDA a device assertion, see RRGKERN_CHECK).
        RuntimeError: a second backward.
    """
    spec = DEFAULT if spec is None else spec
    if not isinstance(spec, PolicyLoss):
        raise PolicyLoss.unlike(spec)
    policy = PolicyInputs(
        *(advantages, offsets, scale, old, ref, sampler, token_weight, on_policy, mask),  # type: ignore[arg-type]
        spec=spec.encode(),
    )
    check_types(policy, logits=logits, targets=targets)
    check_flags(entropy=entropy, inplace=inplace)
    check_derivatives(logits=logits)
    check_logits(logits, targets, temperature)
    policy = policy.packed(Tokens("targets", targets.shape), targets.device)
    check_inputs(policy, spec, "targets", targets, targets.numel())
    with_gradient = torch.is_grad_enabled() and logits.requires_grad
    inplace = inplace and with_gradient and not torch.compiler.is_compiling()
    if inplace:
        _check_inplace(logits)

    call = LogitsInputs(
        as_rows(logits),
        targets.reshape(-1),
        policy.prepared(torch.float64 if logits.dtype == torch.float64 else torch.float32),
        float(temperature),
        entropy or spec.entropy_coef != 0,
    )
    # Under vmap a tensor does not say whether autograd follows, as the one pass has to know.
    mapped = not torch.compiler.is_compiling() and functorch_level() is not None
    if mapped or spec.ties_tokens(sampler is not None):
        if inplace:
            loss, metrics = ComposedInPlace.apply(*flatten(call))
        else:
            logps, entropies, _, _ = token_logps_fwd(
                call.logits, call.targets, call.temperature, call.entropy, call.policy.mask
            )
            loss, metrics = loss_and_metrics(
                logps, entropies if call.entropy else None, call.policy
            )
    elif with_gradient:
        apply: Any = Fused.apply if torch.compiler.is_compiling() else fused
        loss, metrics = apply(inplace, *flatten(call))
    else:
        loss, _, _, metrics = policy_loss_from_logits_fwd(*flatten(call), False)
    return PolicyLossOutput.of(loss, metrics)


def _check_inplace(logits: Tensor) -> None:
    root = logits if logits._base is None else logits._base
    if root.is_leaf and root.requires_grad:
        raise ValueError(
            "inplace=True would overwrite a leaf that requires grad: pass logits that a model "
            "computed, or inplace=False"
        )
    reach = 0  # of the axes so far, in elements beyond the first
    for stride, size in sorted(zip(logits.stride(), logits.shape, strict=True)):
        if size > 1 and stride <= reach:
            raise ValueError(
                f"inplace=True on logits of strides {logits.stride()}, whose rows share memory: "
                "pass inplace=False"
            )
        reach += max(0, size - 1) * stride
