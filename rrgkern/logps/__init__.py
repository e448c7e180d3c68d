"""Log-probabilities and entropy of tokens, from logits or from hidden states and the head."""

from __future__ import annotations

from rrgkern.logps.api import linear_token_logps, token_logps
from rrgkern.logps.online_softmax import TokenLogps

__all__ = ["TokenLogps", "linear_token_logps", "token_logps"]
