"""Rewards: clinical terms composed with weights."""

from rrgtrain.integrations.trl_rewards import trl_reward
from rrgtrain.rewards.service import RewardService, Scores

__all__ = ["RewardService", "Scores", "trl_reward"]
