"""Rewards: clinical terms composed with weights."""

from rrgtrain.rewards.batch import RewardBatch
from rrgtrain.rewards.service import RewardService, Scores
from rrgtrain.rewards.spending import Spending

__all__ = ["RewardBatch", "RewardService", "Scores", "Spending"]
