"""Rewards: clinical terms composed with weights."""

from rrgtrain.rewards.batch import RewardBatch
from rrgtrain.rewards.service import RewardService, Scores, refuse_left_out
from rrgtrain.rewards.spending import Spending
from rrgtrain.rewards.terms import TERMS

__all__ = ["TERMS", "RewardBatch", "RewardService", "Scores", "Spending", "refuse_left_out"]
