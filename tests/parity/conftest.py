"""Fixtures of the parity with TRL."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a tiny Qwen2.5-VL."""
    from tests.parity.trl_tiny import tiny_checkpoint  # where TRL is

    return tiny_checkpoint(tmp_path_factory.mktemp("policy"))
