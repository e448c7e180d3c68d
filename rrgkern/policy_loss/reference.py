"""The policy loss, its gradient and its metrics in plain PyTorch; the oracle of the kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.policy_loss.slopes import removed_by_clip, slopes
from rrgkern.policy_loss.spec import PolicyLoss
from rrgkern.policy_loss.terms import Terms, terms

# The order of the metrics vector.
METRICS = (
    "kl",
    "clip_low",
    "clip_high",
    "ratio_mean",
    "ratio_max",
    "effective_sample_size",
    "entropy",
    "active_tokens",
    "tokens",
)


def policy_loss_reference(
    logps: Tensor,
    advantages: Tensor,
    offsets: Tensor,
    scale: Tensor,
    old: Tensor | None,
    ref: Tensor | None,
    sampler: Tensor | None,
    weight: Tensor | None,
    entropy: Tensor | None,
    on_policy: Tensor | None,
    mask: Tensor | None,
    advantage_per_token: bool,
    scale_per_token: bool,
    spec: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss, its gradients and its metrics in one go.

    Args:
        spec: `PolicyLoss.encode()`. The others as in `policy_loss`; `advantage_per_token` and
            `scale_per_token` say whether those two are [N] rather than [S].

    Returns:
        loss 0-d; coef [N] = ∂loss/∂logps; coef_entropy [N] = ∂loss/∂entropy, size 0 where the
        entropy is not in the loss; metrics in the order of METRICS. All in the dtype of `logps`.
    """
    variant = PolicyLoss.decode(spec)
    t = terms(
        logps,
        advantages,
        offsets,
        scale,
        old,
        ref,
        sampler,
        weight,
        entropy,
        on_policy,
        mask,
        advantage_per_token,
        scale_per_token,
        variant,
    )
    loss = (t.scale * t.loss).double().sum().to(logps.dtype)
    coef = slopes(t, variant)
    coef_entropy = logps.new_empty(0)
    if entropy is not None and variant.entropy_coef:
        coef_entropy = torch.where(t.keep, -variant.entropy_coef * t.scale, 0.0)
    return loss, coef, coef_entropy, _metrics(t, coef, variant)


def _metrics(t: Terms, coef: Tensor, spec: PolicyLoss) -> Tensor:
    """[len(METRICS)]; all 0 for a batch without scored tokens."""

    def total(values: Tensor) -> Tensor:
        return torch.where(t.keep, values.double(), 0.0).sum()

    below, above = removed_by_clip(t, spec)
    tokens = total(t.keep)
    ratio_sum, ratio_squares = total(t.ratio), total(t.ratio.double().square())
    # The smallest ratio is exp(-20): 0 shows only when no token is scored.
    largest = torch.cat([torch.where(t.keep, t.ratio, 0.0), t.ratio.new_zeros(1)]).amax()
    some = tokens.clamp(min=1)
    values = (
        total(t.kl) / some,
        total(below) / some,
        total(above) / some,
        ratio_sum / some,
        largest.double(),
        ratio_sum.square() / (some * torch.where(tokens > 0, ratio_squares, 1.0)),
        total(t.entropy) / some,
        total(coef != 0),
        tokens,
    )
    return torch.stack(values).to(coef.dtype)
