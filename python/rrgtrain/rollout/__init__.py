"""Sampling reports from the policy."""

from rrgtrain.rollout.build import build_engine, require_engine
from rrgtrain.rollout.engine import Rollout, RolloutEngine, SamplingRequest, sampling
from rrgtrain.rollout.transformers_engine import TransformersEngine, generate
from rrgtrain.rollout.vllm_engine import VllmEngine
from rrgtrain.rollout.vllm_server import VllmServerEngine
from rrgtrain.rollout.weights import checkpoint_tensors

__all__ = [
    "Rollout",
    "RolloutEngine",
    "SamplingRequest",
    "TransformersEngine",
    "VllmEngine",
    "VllmServerEngine",
    "build_engine",
    "checkpoint_tensors",
    "generate",
    "require_engine",
    "sampling",
]
