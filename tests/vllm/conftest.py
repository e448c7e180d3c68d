"""These tests run in an environment that holds vLLM (`make test-vllm`); elsewhere they are skipped.

There a missing vLLM is an error, not a skip.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rrgpolicy.model.common import tiny_policy
from tests.vllm.server import Server

ASKED = os.environ.get("RRGKERN_VLLM") == "1"
if ASKED:
    # GiB of an engine's cache. Without it vLLM takes a share of the machine less what this process
    # has, which is nothing once it has grown for long enough.
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    # It asks a process of its own, with all its imports, about each model, and keeps the answer.
    # Tests that set a cache of their own, as each rank of `on_ranks`, would all ask again.
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    os.environ.setdefault("VLLM_CACHE_ROOT", str(home / "vllm"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if ASKED:
        return
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.skip(reason="vLLM has its own environment: make test-vllm"))


@pytest.fixture(autouse=True, scope="module")
def _no_process_group_stays() -> None:
    """vLLM keeps its process group until the process ends."""


@pytest.fixture(autouse=True)
def _global_state_stays() -> None:
    """Nothing is held against these tests: vLLM in the process sets variables of its own."""


@pytest.fixture(autouse=True, scope="module")
def _global_state_stays_over_the_module() -> None:
    """Nothing is held against their modules, for the same reason."""


@pytest.fixture(autouse=True, scope="session")
def _global_state_stays_over_the_session() -> None:
    """Nor against the session."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all modules."""
    made = Server(tmp_path_factory.mktemp("server"), tiny_policy())
    made.start()
    try:
        made.wait()
        yield made
    finally:
        made.kill()
