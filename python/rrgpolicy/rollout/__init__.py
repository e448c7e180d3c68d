"""Sampling reports from the policy."""

from rrgpolicy.rollout.engine import (
    AheadEngine,
    Pushed,
    Rollout,
    RolloutEngine,
    SamplingRequest,
    require_kept,
    require_taken,
    sampling,
    whole_policy,
)
from rrgpolicy.rollout.transformers_engine import TransformersEngine, generate
from rrgpolicy.rollout.vllm_engine import VllmEngine, require_architecture, require_vllm
from rrgpolicy.rollout.vllm_server import VllmServerEngine, serve_command
from rrgpolicy.rollout.weights import checkpoint_tensors, named_as_loaded, require_pushable

__all__ = [
    "AheadEngine",
    "Pushed",
    "Rollout",
    "RolloutEngine",
    "SamplingRequest",
    "TransformersEngine",
    "VllmEngine",
    "VllmServerEngine",
    "checkpoint_tensors",
    "generate",
    "named_as_loaded",
    "require_architecture",
    "require_kept",
    "require_pushable",
    "require_taken",
    "require_vllm",
    "sampling",
    "serve_command",
    "whole_policy",
]
