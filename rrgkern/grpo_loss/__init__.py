"""The policy loss from logits, forward and gradient in one pass."""

from __future__ import annotations

from rrgkern.grpo_loss.api import grpo_loss

__all__ = ["grpo_loss"]
