"""The loop keeps no batch alive, and counts its time where it was spent."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from rrgclinical.common.stopwatch import Stopwatch
from rrgdata.study import Study
from rrgtrain.algorithms import Group
from rrgtrain.state.null_checkpointer import NullCheckpointer
from rrgtrain.train import step_log as log_module
from rrgtrain.train.step_record import StepRecord
from tests.rrgtrain.common import recipe
from tests.rrgtrain.train.loops import Length, trained


def test_a_batch_is_gone_before_the_next_is_drawn(tmp_path: Path) -> None:
    """Its images, where the cache of prompts is full, are as large as those of the next."""
    groups: list[weakref.ref[Group]] = []
    left: list[int] = []

    class Asks(Length):
        def prefetch(self, references: Sequence[Study | str]) -> Future[None]:
            gc.collect()
            left.append(sum(group() is not None for group in groups))
            return super().prefetch(references)

    class Sees:
        def __call__(self, record: StepRecord) -> None:
            groups.extend(map(weakref.ref, record.batch.groups))

        def state_dict(self) -> dict[str, object]:
            return {}

        def load_state_dict(self, state: dict[str, object]) -> None:
            """Nothing to put back."""

    cfg = recipe("rl.algorithm=dr_grpo", "rl.steps=3")
    trained(tmp_path / "run", cfg, rewards=Asks(), record=Sees())
    assert groups and left == [0, 0, 0]


def test_what_keeping_the_best_takes_counts_as_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the step that follows would log a slow rollout."""
    told: list[str] = []

    class Laps(Stopwatch):
        def lap(self, phase: str) -> float:
            told.append(phase)
            return super().lap(phase)

    class Keeps(NullCheckpointer):
        def keep(self, step: int, needed: Collection[int]) -> bool:
            told.append("keep")
            return False

    monkeypatch.setattr(log_module, "Stopwatch", Laps)
    cfg = recipe("rl.algorithm=dr_grpo", "rl.steps=2", "rl.eval_every=1")
    trained(tmp_path / "run", cfg, rewards=Length(), scores=(0.1, 0.2, 0.3), checkpointer=Keeps())
    after = [told[k + 1] for k, what in enumerate(told) if what == "keep"]
    assert after == ["validate"] * 3
