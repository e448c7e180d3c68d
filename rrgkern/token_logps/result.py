"""What both log-probability rooms return."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class TokenLogps(NamedTuple):
    """Log-probability of each target, and entropy of each distribution, in nats.

    Both have the shape of `targets` and are fp32 (fp64 for fp64 inputs). `entropy` has size 0
    when it was not asked for.
    """

    logps: Tensor
    entropy: Tensor
