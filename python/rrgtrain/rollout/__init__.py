"""Sampling reports from the policy."""

from rrgtrain.rollout.transformers_engine import Rollout, generate

__all__ = ["Rollout", "generate"]
