"""Serve a scorer over HTTP behind a queue, and ask it from trainers.

The scorer is any function of reports and references, so this room knows no reward of its own;
`rrgtrain serve` puts the terms of a recipe behind it. The clients load the standard library and
numpy, and nothing of the server.
"""

from __future__ import annotations

from rrgclinical.serving.client import (
    RewardClient,
    ServiceError,
    easyr1_pairs,
    easyr1_reward,
    swift_reward,
    verl_reward,
)

__all__ = [
    "RewardClient",
    "ServiceError",
    "easyr1_pairs",
    "easyr1_reward",
    "swift_reward",
    "verl_reward",
]
