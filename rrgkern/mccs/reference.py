"""Plain PyTorch of the margin-based cosine; the kernels equal it bit for bit."""

from __future__ import annotations

import torch
from torch import Tensor

SCORED = 13  # "No Finding", the last of the 14 columns, is left out


def mccs_reference(pred: Tensor, truth: Tensor, margin: float, both_blank: float) -> Tensor:
    """Compute max((CCS − m)/(1 − m), 0) of each row (MRG-R1).

    Args:
        pred, truth: [R, 14] class ids 0 blank, 1 positive, 2 negative, 3 uncertain, which stand
            for 0, +1, −1, +1.
        margin: m.
        both_blank: the reward of a row blank on both sides.

    Returns:
        [R] fp32, computed in float64 and rounded once.
    """
    polarity = torch.tensor([0, 1, -1, 1], device=pred.device)
    p = polarity[pred[:, :SCORED].long()]
    t = polarity[truth[:, :SCORED].long()]
    dot, pred_square, truth_square = (p * t).sum(1), (p * p).sum(1), (t * t).sum(1)
    ccs = dot.double() / (
        (pred_square.double().sqrt() + 1e-8) * (truth_square.double().sqrt() + 1e-8)
    )
    reward = ((ccs - margin) / (1.0 - margin)).clamp(min=0.0)
    # A blank row has no direction: without this a negative margin would pay for it.
    reward = reward.masked_fill((pred_square == 0) | (truth_square == 0), 0.0)
    reward = reward.masked_fill((pred_square == 0) & (truth_square == 0), both_blank)
    return reward.float()
