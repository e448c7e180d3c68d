"""Rewards: clinical terms composed with weights."""

from rrgtrain.rewards.service import RewardService

__all__ = ["RewardService"]
