"""Wrong gradients of logits that every test of a log-probability must notice.

Each takes the right gradient [..., V], its targets and the temperature; a test plants one behind
the op and expects its own checks to fail.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def _target_column_only(gradient: Tensor, targets: Tensor, temperature: float) -> Tensor:
    flat = gradient.view(-1, gradient.shape[-1])
    column = targets.reshape(-1, 1)
    kept = torch.zeros_like(flat).scatter_(1, column, flat.gather(1, column))
    return kept.view_as(gradient)


GRADIENT_MUTANTS: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "zero": lambda gradient, targets, temperature: torch.zeros_like(gradient),
    "half scale": lambda gradient, targets, temperature: gradient / 2,
    "sign flip": lambda gradient, targets, temperature: -gradient,
    "target column only": _target_column_only,
    "missing 1/T": lambda gradient, targets, temperature: gradient * temperature,
}
