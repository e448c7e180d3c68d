"""Remembered texts and images of these tests lie in a directory of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rrgdata.images import check


@pytest.fixture(autouse=True)
def cache_home(tmp_path_factory, monkeypatch) -> Path:
    path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    return path


@pytest.fixture
def cache(cache_home) -> Path:
    return cache_home / "rrgtrain"


@pytest.fixture
def opened(monkeypatch) -> list[Path]:
    paths: list[Path] = []
    real = check.read_with_facts
    monkeypatch.setattr(check, "read_with_facts", lambda path: (paths.append(path), real(path))[1])
    return paths
