"""The policy loss from logits, forward and gradient in one pass."""

from __future__ import annotations

from rrgkern.policy_loss.from_logits.api import policy_loss_from_logits

__all__ = ["policy_loss_from_logits"]
