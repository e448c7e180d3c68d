"""The bench of head and loss in one, at the size of a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.update_head import ONE, TWO, compare, head, update
from bench.update_step import Case


@pytest.mark.gate
def test_an_update_in_one_takes_no_more_memory(tmp_path: Path) -> None:
    found = compare(update(600, Case(1, 2, 8, 56), tmp_path), rounds=1)
    assert found["time"][TWO] == found["memory"][TWO] == 1
    assert found["memory"][ONE] <= 1.1


@pytest.mark.parametrize("trains", [True, False])
def test_every_mode_of_a_head_is_measured(trains: bool) -> None:
    modes = {"grad_in_forward", "recompute"} if trains else {"frozen_head", "recompute"}
    work = head(600, 64, trains=trains)
    assert work.keys() == {TWO, *(f"{ONE}, {mode}" for mode in modes)}
    assert [g.shape for g in work[TWO]()] == [(64, 128), (600, 128)][: 1 + trains]
