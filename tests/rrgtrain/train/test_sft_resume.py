"""Fine-tuning that is cut off and resumed goes on to the same bits: moments, generators, the best
weights so far. In one process; `test_resume` does the same with whole commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rrgpolicy.model.lora import add_lora
from rrgpolicy.model.policy import Policy
from rrgtrain.errors import Stopped
from rrgtrain.log.logs import RunLog
from rrgtrain.schema import CheckpointSettings, LoraSettings
from rrgtrain.state.checkpointer import Checkpointer
from rrgtrain.state.null_checkpointer import NullCheckpointer, State
from rrgtrain.state.rundir import RunDir
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.sft import SftResult, train_sft
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import recipe, sft_run, studies

Weights = dict[str, torch.Tensor]
CUT = -1.0


class Validation:
    """Gives the scores of a list, and keeps the weights it was asked about; stops at CUT."""

    def __init__(self, policy: Policy, scores: list[float]) -> None:
        self.policy, self.scores, self.seen = policy, scores, list[Weights]()

    def __call__(self) -> dict[str, float]:
        score = self.scores[len(self.seen)]
        if score == CUT:
            raise Stopped("cut off")
        self.seen.append(adapter(self.policy))
        return {"micro_f1_13": score}


def adapter(policy: Policy) -> Weights:
    trained = policy.model.named_parameters()
    return {n: p.detach().clone() for n, p in trained if p.requires_grad}


def tuned(
    home: Path, scores: list[float], *, resume: bool = False, steps: int = 6
) -> tuple[Policy, list[Weights], SftResult | None]:
    """Steps with dropout, which draws from the global generator; validated at 2, 4 and 6."""
    policy = tiny_policy()
    add_lora(policy, LoraSettings(rank=2, alpha=8.0, dropout=0.3), 0)
    validate, result = Validation(policy, scores), None
    cfg = recipe(f"sft.steps={steps}", "sft.eval_every=2", "sft.lr=0.01")
    with RunDir.create(home, resume=resume) as run, RunLog(run) as log:
        checkpointer = Checkpointer(run, policy, log, "sft", CheckpointSettings(steps=1000))
        if resume:
            assert checkpointer.resume() == "at step 4 of sft"
        # a process that is started again draws something else
        torch.manual_seed(2 if resume else 1)
        prompts, out = PromptLoader(policy, "short"), run.checkpoints / "sft"
        try:
            result = train_sft(
                sft_run(
                    policy, prompts, studies(7), cfg, validate, out, log, checkpointer=checkpointer
                )
            )
        except Stopped:
            assert CUT in scores
    return policy, validate.seen, result


def equal(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


@pytest.fixture
def alone(tmp_path: Path) -> tuple[Policy, list[Weights], SftResult | None]:
    return tuned(tmp_path / "alone", [0.5, 0.1, 0.2])


def test_the_steps_after_a_resume_and_the_weights_that_are_kept(
    alone: tuple[Policy, list[Weights], SftResult | None], tmp_path: Path
) -> None:
    policy, seen, result = alone
    assert result is not None and (result.best_step, result.steps) == (2, 6)
    assert not any(equal(seen[i], seen[k]) for i, k in ((0, 1), (1, 2)))
    _, before, none = tuned(tmp_path / "cut", [0.5, CUT])
    assert none is None and equal(before[0], seen[0])
    again, after, resumed = tuned(tmp_path / "cut", [0.1, 0.2], resume=True)
    assert len(after) == 2 and equal(after[0], seen[1]), "where it was cut off"
    assert equal(after[1], seen[2]), "two steps later"
    assert resumed is not None and (resumed.best_step, resumed.steps) == (2, 6)
    assert equal(adapter(again), seen[0]) and equal(adapter(policy), seen[0]), "the best"


def test_a_resume_with_fewer_steps_than_were_made_validates_and_ends(tmp_path: Path) -> None:
    tuned(tmp_path / "cut", [0.5, CUT])
    _, seen, result = tuned(tmp_path / "cut", [0.1], resume=True, steps=3)
    assert len(seen) == 1 and result is not None
    assert (result.best_step, result.steps) == (2, 4)


class Earlier(NullCheckpointer):
    """Gives the state after two steps, whose validation had a micro-F1 of 0.5."""

    def begin(self, stage: str, state: Callable[[], State]) -> State:
        by = json.dumps({"eval.best_by": "micro_f1"})
        best = {"by": by, "value": 0.5, "step": 2, "copies": {2: {}}}
        return {**state(), "step": 2, "validated": 2, "plateau": 0.5, "best": best}


@pytest.mark.filterwarnings("ignore:the checkpoint chose its best weights")
@pytest.mark.parametrize(("by", "step"), [("micro_f1", 2), ("micro_f1_13", 4)])
def test_a_plateau_of_another_metric_is_none(by: str, step: int, tmp_path: Path) -> None:
    """By the same metric 0.4 brings nothing; by another it is the first that counts."""
    policy = tiny_policy()
    cfg = recipe("sft.steps=6", "sft.eval_every=2", "sft.patience=1", f"eval.best_by={by}")
    with RunDir.create(tmp_path / "run") as run, RunLog(run) as log:
        given = policy, PromptLoader(policy, "short"), studies(5), cfg, lambda: {by: 0.4}
        done = train_sft(sft_run(*given, run.checkpoints / "sft", log, checkpointer=Earlier()))
    assert done.best_step == step and done.steps == step + 2
