"""The policy loss from hidden states and the head's weight, with its gradient."""

from __future__ import annotations

from rrgkern.policy_loss.linear.api import linear_policy_loss

__all__ = ["linear_policy_loss"]
