"""A package `vllm` whose LLM takes weights as vLLM's does."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from rrgpolicy.model.load import load_policy
from tests.rrgpolicy.model.common import tiny_directory
from tests.rrgpolicy.rollout.served import Worker


class LLM:
    """One worker with a policy of the configuration that it is started from, and no weights."""

    def __init__(self, *, model: str, worker_extension_cls: str, dtype: str, **given: Any) -> None:
        assert worker_extension_cls == "rrgpolicy.vllm_worker.PushedWeights"
        assert (Path(model) / "config.json").is_file() and given["load_format"] == "dummy"
        policy = load_policy(tiny_directory(), dtype=getattr(torch, dtype))
        with torch.no_grad():
            for parameter in policy.language_model.parameters():
                parameter.zero_()
        self.worker = Worker(policy)
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
    module.__version__ = "0.0"  # type: ignore[attr-defined]
    served = ["Qwen2_5_VLForConditionalGeneration", "Qwen2ForCausalLM", "Qwen3ForCausalLM"]
    module.ModelRegistry = types.SimpleNamespace(  # type: ignore[attr-defined]
        get_supported_archs=lambda: served
    )
    module.SamplingParams = types.SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # as the engine does, for good
    monkeypatch.setitem(sys.modules, "vllm", module)
    # The engine sets it; so it is taken away again with the stub.
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
