"""The preference loss, its gradient and metrics in plain PyTorch: the kernel's oracle."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rrgkern.preference_loss.inputs import PreferenceInputs
from rrgkern.segments import sequence_of_token, sum_per_sequence

# The order of the metrics vector.
METRICS = ("margin", "accuracy", "reward_positive", "reward_negative", "pairs")


def pair_rewards(inputs: PreferenceInputs) -> tuple[Tensor, Tensor]:
    """Compute the implicit rewards of both sides, [P] fp64 twice; differentiable in `logps`."""
    logps, ref, offsets, pairs, mask, tau, length_normalized = inputs
    sequence = sequence_of_token(offsets, logps.numel())
    gain = logps.double() - ref.double()
    if mask is not None:
        # Selected, never multiplied: a NaN at a masked position must vanish.
        gain = torch.where(mask, gain, 0.0)
    total = sum_per_sequence(gain, sequence, offsets.numel() - 1)
    reward = tau * total / _divisor(offsets, sequence, mask, length_normalized)
    return reward[pairs.positive], reward[pairs.negative]


def pair_losses(margin: Tensor, weight: Tensor) -> Tensor:
    """Compute weight · -log σ(margin), [P] fp64; 0 for a pair without weight."""
    return torch.where(weight != 0, -weight.double() * F.logsigmoid(margin), 0.0)


def preference_loss_reference(inputs: PreferenceInputs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the loss, its gradient, the same as advantages, and metrics, summed in fp64.

    Args:
        inputs: logps, ref [N] fp32 or fp64; offsets [S+1] int64; mask [N] bool or None;
            pairs: positive, negative [P] int64, weight [P] of the dtype of `logps`.

    Returns:
        loss 0-d; coef [N] = ∂loss/∂logps; advantages [S], coef = -advantage (/ |o|); metrics in
        the order of METRICS. All in the dtype of `logps`.
    """
    logps, _, offsets, (positive, negative, weight), mask, tau, length_normalized = inputs
    better, worse = pair_rewards(inputs)
    margin, live = better - worse, weight != 0
    loss = pair_losses(margin, weight).sum()

    pull = torch.where(live, tau * weight.double() * torch.sigmoid(-margin), 0.0)
    advantages = pull.new_zeros(offsets.numel() - 1)
    advantages = advantages.index_add(0, positive, pull).index_add(0, negative, -pull)
    sequence = sequence_of_token(offsets, logps.numel())
    coef = -(advantages / _divisor(offsets, sequence, mask, length_normalized))[sequence]
    if mask is not None:
        coef = torch.where(mask, coef, 0.0)

    # In the order of METRICS.
    listed = torch.stack([margin, (margin > 0).double(), better, worse, torch.ones_like(margin)])
    metrics = torch.where(live, listed, 0.0).sum(1)
    metrics[:-1] /= metrics[-1].clamp(min=1)
    dtype = logps.dtype
    return loss.to(dtype), coef.to(dtype), advantages.to(dtype), metrics.to(dtype)


def _divisor(
    offsets: Tensor, sequence: Tensor, mask: Tensor | None, length_normalized: bool
) -> Tensor:
    """Count each sequence's scored tokens, [S] fp64, at least 1; ones if not length-normalised."""
    lengths = offsets.diff().double()
    if not length_normalized:
        return torch.ones_like(lengths)
    if mask is not None:
        lengths = sum_per_sequence(mask, sequence, lengths.numel())
    return lengths.clamp(min=1)
