"""DPO on the log-probabilities that the policy loss uses: a report against its group."""

from __future__ import annotations

from rrgkern.preference_loss.api import PreferenceLossOutput, preference_advantages, preference_loss
from rrgkern.preference_loss.inputs import PreferencePairs
from rrgkern.preference_loss.pairs import oracle_pairs

__all__ = [
    "PreferenceLossOutput",
    "PreferencePairs",
    "oracle_pairs",
    "preference_advantages",
    "preference_loss",
]
