"""Without a GPU the Triton kernels run in their interpreter, which is set before import."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from tests import interpreter, unsynced
from tests.global_state import unchanged
from tests.products import every_case
from tests.skips import pytest_sessionfinish, pytest_terminal_summary

__all__ = ["pytest_sessionfinish", "pytest_terminal_summary"]

# Time limits per example fail on a busy machine, and nowhere else.
same_cases = os.environ.get("RRGKERN_SAME_CASES") == "1"
settings.register_profile("project", deadline=None, derandomize=same_cases)
settings.load_profile("project")

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# What is imported and collected stays to the end: looking through it for garbage, again and again,
# took a quarter of the collection's time and half of that of tests which hold many objects.
gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Modules with long tests begin: at the end one worker would wait for the other.
    if "PYTEST_XDIST_WORKER" in os.environ:
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _global_state_stays() -> Iterator[None]:
    """Fails a test that leaves settings of torch, NumPy, locale or process changed."""
    with unchanged():
        yield


@pytest.fixture(autouse=True, scope="module")
def _global_state_stays_over_the_module() -> Iterator[None]:
    """Fails the last test of a module whose fixtures leave a setting changed.

    Such a fixture changes it before the first look of the test; this one is set up before it.
    """
    with unchanged("the module"):
        yield


@pytest.fixture(autouse=True, scope="session")
def _global_state_stays_over_the_session() -> Iterator[None]:
    """Fails the last test where a fixture of a folder or session leaves a setting changed."""
    with unchanged("the session"):
        yield


@pytest.fixture(autouse=True, scope="module")
def _no_process_group_stays() -> Iterator[None]:
    """Fails the last test of a module that leaves a process group to those of the next one."""
    yield
    assert not torch.distributed.is_initialized(), "the module leaves a process group open"


unsynced.patch_once()

# As the command line sets it; in a test that calls it, a change of the environment.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def pytest_runtest_setup(item: pytest.Item) -> None:
    # A kernel's module imports it at its first launch, and a run without kernels never does.
    if "triton.runtime.interpreter" in sys.modules:
        interpreter.patch_once()
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if item.get_closest_marker("gate") and os.environ.get("RRGKERN_GATES") != "1":
        pytest.skip("a gate: make gates")
    if item.get_closest_marker("product") and not every_case():
        pytest.skip("one of a product: make slow NAME=products")
