"""Sampling reports from the policy."""

from rrgtrain.rollout.build import build_engine, require_engine
from rrgtrain.rollout.engine import Rollout, RolloutEngine, SamplingRequest
from rrgtrain.rollout.transformers_engine import TransformersEngine, generate

__all__ = [
    "Rollout",
    "RolloutEngine",
    "SamplingRequest",
    "TransformersEngine",
    "build_engine",
    "generate",
    "require_engine",
]
