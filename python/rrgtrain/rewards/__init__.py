"""Rewards: clinical terms composed with weights."""

from rrgtrain.rewards.batch import RewardBatch
from rrgtrain.rewards.service import RewardService, Scores

__all__ = ["RewardBatch", "RewardService", "Scores"]
