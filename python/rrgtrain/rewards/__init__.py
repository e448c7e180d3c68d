"""Rewards: clinical terms composed with weights."""

from rrgtrain.rewards.service import RewardService, Scores
from rrgtrain.rewards.trl import trl_reward

__all__ = ["RewardService", "Scores", "trl_reward"]
