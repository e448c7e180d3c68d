"""The policy loss from hidden states and the head's weight, with its gradient."""

from __future__ import annotations

from rrgkern.linear_grpo_loss.api import linear_grpo_loss

__all__ = ["linear_grpo_loss"]
