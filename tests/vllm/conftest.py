"""These tests run in an environment that holds vLLM (`make test-vllm`); elsewhere they are skipped.

There a missing vLLM is an error, not a skip.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ASKED = os.environ.get("RRGKERN_VLLM") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if ASKED:
        return
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.skip(reason="vLLM has its own environment: make test-vllm"))


@pytest.fixture(autouse=True)
def _global_state_stays() -> None:
    """Nothing is held against these tests: vLLM in the process sets variables of its own."""
