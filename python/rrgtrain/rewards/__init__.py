"""Rewards: clinical terms composed with weights."""

from rrgtrain.rewards.service import RewardService, Scores

__all__ = ["RewardService", "Scores"]
