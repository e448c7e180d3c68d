"""Log-probabilities and entropy of tokens, from hidden states and the head's weight."""

from __future__ import annotations

from rrgkern.linear_token_logps.api import linear_token_logps

__all__ = ["linear_token_logps"]
