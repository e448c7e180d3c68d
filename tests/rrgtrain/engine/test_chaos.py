"""Kill -9 at four moments of a demo; `make chaos` has forty."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import killed, left_alone


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    return left_alone(tmp_path_factory.mktemp("chaos") / "alone")


@pytest.mark.parametrize("share", [0.2, 0.45, 0.7, 0.95])
def test_a_killed_run_ends_as_if_it_had_been_left_alone(
    share: float, alone: tuple[Path, float], tmp_path: Path
) -> None:
    run, seconds = alone
    trial = killed(tmp_path / "home", [share * seconds], run)
    assert trial.phases, "the kill came too late to hit anything"
    assert trial.differences == []
