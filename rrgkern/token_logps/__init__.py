"""Log-probabilities and entropy of tokens, from logits."""

from __future__ import annotations

from rrgkern.token_logps.api import token_logps
from rrgkern.token_logps.result import TokenLogps

__all__ = ["TokenLogps", "token_logps"]
