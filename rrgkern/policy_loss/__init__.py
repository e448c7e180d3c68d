"""The policy-gradient loss: one definition, every variant."""

from __future__ import annotations

from rrgkern.policy_loss.api import PolicyLossOutput, policy_loss
from rrgkern.policy_loss.scale import (
    AGGREGATIONS,
    loss_scale,
    off_policy_weight,
    top_entropy_weight,
)
from rrgkern.policy_loss.spec import PolicyLoss

__all__ = [
    "AGGREGATIONS",
    "PolicyLoss",
    "PolicyLossOutput",
    "loss_scale",
    "off_policy_weight",
    "policy_loss",
    "top_entropy_weight",
]
