"""Sampling reports from the policy."""

from rrgtrain.rollout.build import READERS, build_engine, find_engine, require_engine
from rrgtrain.rollout.engine import Rollout, RolloutEngine, SamplingRequest, sampling, whole_policy
from rrgtrain.rollout.pushed import Pushed, require_kept, require_taken
from rrgtrain.rollout.transformers_engine import TransformersEngine, generate
from rrgtrain.rollout.vllm_engine import VllmEngine, require_architecture
from rrgtrain.rollout.vllm_server import VllmServerEngine, serve_command
from rrgtrain.rollout.weights import checkpoint_tensors, named_as_loaded

__all__ = [
    "READERS",
    "Pushed",
    "Rollout",
    "RolloutEngine",
    "SamplingRequest",
    "TransformersEngine",
    "VllmEngine",
    "VllmServerEngine",
    "build_engine",
    "checkpoint_tensors",
    "find_engine",
    "generate",
    "named_as_loaded",
    "require_architecture",
    "require_engine",
    "require_kept",
    "require_taken",
    "sampling",
    "serve_command",
    "whole_policy",
]
