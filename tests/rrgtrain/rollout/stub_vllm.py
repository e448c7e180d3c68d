"""A package `vllm` whose LLM takes weights as vLLM's does."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from typing import Any

import pytest
import torch

from rrgtrain.policy.load import load_policy
from tests.rrgtrain.rollout.served import Worker


class LLM:
    """One worker with a policy of the checkpoint that it is started from, and the arguments."""

    def __init__(self, *, model: str, worker_extension_cls: str, dtype: str, **_: Any) -> None:
        assert worker_extension_cls == "rrgtrain.vllm_worker.PushedWeights"
        self.worker = Worker(load_policy(model, dtype=getattr(torch, dtype)))
        self.llm_engine = types.SimpleNamespace(reset_encoder_cache=lambda: None)

    def collective_rpc(self, method: str, kwargs: dict[str, Any] | None = None) -> list[Any]:
        return [getattr(self.worker, method)(**(kwargs or {}))]

    def reset_prefix_cache(self) -> None:
        pass


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `import vllm` find the stub."""
    module = types.ModuleType("vllm")
    module.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    module.LLM = LLM  # type: ignore[attr-defined]
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # as the engine does, for good
    monkeypatch.setitem(sys.modules, "vllm", module)
    # The engine sets it; so it is taken away again with the stub.
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
