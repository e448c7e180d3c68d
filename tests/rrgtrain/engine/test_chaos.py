"""Kill -9 at four moments of a demo; `make chaos` has forty."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import killed
from tests.rrgtrain.engine.runs import finished_demo


@pytest.mark.parametrize("share", [0.2, 0.45, 0.7, 0.95])
def test_a_killed_run_ends_as_if_it_had_been_left_alone(share: float, tmp_path: Path) -> None:
    run, seconds = finished_demo()
    for earlier in (1.0, 0.8, 0.6, 0.4):  # a process may be faster than the one that was measured
        trial = killed(tmp_path / str(earlier), [earlier * share * seconds], run)
        assert trial.differences == []
        if trial.phases:
            return
    pytest.fail("every kill came too late to hit anything")
