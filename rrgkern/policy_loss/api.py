"""Compute the policy loss from log-probabilities: the public function."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.checks import check_derivatives
from rrgkern.metrics import Metrics
from rrgkern.padded import Tokens
from rrgkern.policy_loss.inputs import PolicyInputs, check_inputs, check_types
from rrgkern.policy_loss.op import loss_and_metrics, loss_as_passed
from rrgkern.policy_loss.reference import METRICS
from rrgkern.policy_loss.spec import PolicyLoss

DEFAULT = PolicyLoss()


class PolicyLossOutput(NamedTuple):
    """Loss, 0-d and differentiable; metrics, 0-d tensors on the same device without gradient."""

    loss: Tensor
    metrics: MutableMapping[str, Tensor]

    @classmethod
    def of(cls, loss: Tensor, metrics: Tensor) -> PolicyLossOutput:
        """Name the metrics, which come in the order of METRICS."""
        return cls(loss, Metrics(METRICS, metrics))


def policy_loss(  # noqa: PLR0913
    logps: Tensor,
    advantages: Tensor,
    offsets: Tensor | None = None,
    *,
    scale: Tensor,
    old: Tensor | None = None,
    ref: Tensor | None = None,
    sampler: Tensor | None = None,
    token_weight: Tensor | None = None,
    entropy: Tensor | None = None,
    on_policy: Tensor | None = None,
    mask: Tensor | None = None,
    spec: PolicyLoss | None = None,
) -> PolicyLossOutput:
    """Policy-gradient loss over the scored tokens of a batch, with its gradient and metrics.

    loss = Σ_t scale_t (ρ_t ℓ_t + β kl_t - η entropy_t), with ℓ, ρ and kl as `spec` says and the
    README derives: PPO (Schulman et al. 2017), GSPO (arXiv 2507.18071), CISPO (arXiv 2506.13585),
    SAPO (arXiv 2511.20347), LUSPO (arXiv 2602.05261), VESPO (arXiv 2602.10693), GMPO (arXiv
    2507.20673), k1 to k3 (Schulman, "Approximating KL divergence").

    S sequences hold N tokens, one after the other. An empty sequence contributes 0. Per-token
    tensors take the dtype of `logps`, fp32 or fp64; half precision is computed in fp32.

    A padded batch has no offsets: every [N] is then [B, T], every [S] is [B], and `mask` says which
    positions are scored. Padding is neither moved nor read.

    First derivatives of `logps` and `entropy` by backward() and torch.autograd.grad are served;
    differentiating a gradient made with create_graph=True (making it, batched or under
    torch.compile), forward mode, torch.func, and any other argument that requires a gradient raise
    NotImplementedError.

    Args:
        logps: [N] or [B, T] log-probabilities of the policy; differentiable.
        advantages: [S] or [S, 1], one per sequence, or [N] or [1, N], one per token. Two axes are
            wanted where S == N and the sequences have not one token each. Padded: [B] or [B, 1],
            or [B, T].
        offsets: [S+1] int64, where sequences begin; None for a padded batch.
        scale: [S], from `loss_scale`, or [S, 1], or [N] or [1, N], one per token, or padded as
            advantages. One axis is read as [S] where S == N.
        old: [N] log-probabilities of the policy that sampled. None: the policy itself, so every
            ratio is exactly 1.
        ref: [N] log-probabilities of the frozen reference; needed when beta is not 0, and
            reported as the metric "kl" whenever given.
        sampler: [N] log-probabilities reported by the rollout engine, NaN where it has none.
        token_weight: [N] factor of the advantage (DiTPO's token weights).
        entropy: [N]; differentiable, needed when entropy_coef is not 0.
        on_policy: [S] bool. Such a sequence (edited, injected) is treated as if the policy itself
            had sampled it, token by token: ratio 1, gradient -A ∇logp, no sampler correction,
            whatever stands in its `old` and `sampler`.
        mask: [N] bool or integers, True or not 0 for a scored token. Nothing at the others is
            read, NaN included.
        spec: the variant; None is `PolicyLoss()`.

    Returns:
        The loss and the metrics "kl", "clip_low", "clip_high", "ratio_mean", "ratio_max",
        "effective_sample_size", "entropy", "active_tokens" and "tokens" (see the README).

    Raises:
        TypeError: a dtype is wrong, or a tensor is a DTensor, sparse or nested.
        ValueError: a length or device is wrong, a tensor that `spec` needs is missing, or, on CPU
            or with RRGKERN_CHECK=1, offsets do not run from 0 to N.
    """
    spec = DEFAULT if spec is None else spec
    if not isinstance(spec, PolicyLoss):
        raise PolicyLoss.unlike(spec)
    others = (advantages, offsets, scale, old, ref, sampler, token_weight, on_policy, mask)
    served = loss_as_passed(logps, entropy, others, spec)
    if served is not None:
        return PolicyLossOutput.of(*served)
    policy = PolicyInputs(*others, spec=spec.encode())  # type: ignore[arg-type]
    check_types(policy, logps=logps, optional={"entropy": entropy})
    check_derivatives(logps=logps, entropy=entropy)
    if logps.ndim != (2 if offsets is None and logps.ndim != 1 else 1):
        raise ValueError(
            f"logps has shape {tuple(logps.shape)}; wanted [N] with offsets, [B, T] without"
        )
    if not logps.is_floating_point():
        raise TypeError(f"logps is {logps.dtype}; wanted floating point")
    tokens = Tokens("logps", logps.shape)
    policy = policy.packed(tokens, logps.device)
    if entropy is not None and logps.ndim == 2:
        entropy = tokens.flat("entropy", entropy)
    check_inputs(policy, spec, "logps", logps, tokens.total, entropy)
    if spec.entropy_coef and entropy is None:
        raise ValueError(
            f"entropy_coef is {spec.entropy_coef} and entropy is None; pass entropy [N] or set "
            "entropy_coef to 0"
        )
    dtype = logps.dtype if logps.dtype == torch.float64 else torch.float32
    loss, metrics = loss_and_metrics(
        logps.to(dtype).reshape(-1).contiguous(),
        None if entropy is None else entropy.to(dtype).contiguous(),
        policy.prepared(dtype),
    )
    return PolicyLossOutput.of(loss, metrics)
