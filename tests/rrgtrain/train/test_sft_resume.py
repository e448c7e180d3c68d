"""Fine-tuning that is resumed: fewer steps than were made, and a plateau of another metric.

That it goes on to the same bits `test_resume` says of whole commands.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rrgtrain.log.logs import RunLog
from rrgtrain.state.null_checkpointer import NullCheckpointer, State
from rrgtrain.state.rundir import RunDir
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.sft import SftResult, train_sft
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import recipe, sft_run, studies


class Earlier(NullCheckpointer):
    """Gives the state after some steps; a validation after two had a micro-F1 of 0.5."""

    def __init__(self, step: int) -> None:
        self.step_made = step

    def begin(self, stage: str, state: Callable[[], State]) -> State:
        by = json.dumps({"eval.best_by": "micro_f1"})
        best = {"by": by, "value": 0.5, "step": 2, "copies": {2: {}}}
        return {**state(), "step": self.step_made, "validated": 2, "plateau": 0.5, "best": best}


def resumed(home: Path, step: int, by: str, *words: str) -> tuple[SftResult, int]:
    """Go on after `step` steps, each validation at 0.4; return how many there were, too."""
    policy, validations = tiny_policy(), []

    def validate() -> dict[str, float]:
        validations.append(by)
        return {by: 0.4}

    cfg = recipe("sft.eval_every=2", "sft.patience=1", f"eval.best_by={by}", *words)
    with RunDir.create(home) as run, RunLog(run) as log:
        of_run = policy, PromptLoader(policy, "short"), studies(5), cfg, validate
        run_ = sft_run(*of_run, run.checkpoints / "sft", log, checkpointer=Earlier(step))
        return train_sft(run_), len(validations)


def test_a_resume_with_fewer_steps_than_were_made_validates_and_ends(tmp_path: Path) -> None:
    result, validations = resumed(tmp_path / "run", 4, "micro_f1", "sft.steps=3")
    assert (result.best_step, result.steps, validations) == (2, 4, 1)


@pytest.mark.filterwarnings("ignore:the checkpoint chose its best weights")
@pytest.mark.parametrize(("by", "step"), [("micro_f1", 2), ("micro_f1_13", 4)])
def test_a_plateau_of_another_metric_is_none(by: str, step: int, tmp_path: Path) -> None:
    """By the same metric 0.4 brings nothing; by another it is the first that counts."""
    result, _ = resumed(tmp_path / "run", 2, by, "sft.steps=6")
    assert result.best_step == step and result.steps == step + 2
