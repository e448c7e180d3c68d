"""A package `vllm` whose LLM takes weights as vLLM's does and samples with the trainer's code."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from typing import Any

import pytest


class LLM:
    """Keeps the tensors of the last reload as `weights`, and the arguments it was made with."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.llm_engine = types.SimpleNamespace(reset_encoder_cache=lambda: None)
        self.weights: dict[str, Any] = {}

    def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> list[Any]:
        assert method == "reload_weights"
        self.weights = {name: value.clone() for name, value in kwargs["weights_iterator"]}
        return [None]

    def reset_prefix_cache(self) -> None:
        pass


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `import vllm` find the stub."""
    module = types.ModuleType("vllm")
    module.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    module.LLM = LLM  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
