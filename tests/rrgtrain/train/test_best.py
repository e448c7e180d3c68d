"""Test the checkpoint that fine-tuning hands to reinforcement learning (`sft.choose`)."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy
from rrgtrain.errors import UserError
from rrgtrain.log.logs import RunLog
from rrgtrain.schema import EvalSettings
from rrgtrain.state.null_checkpointer import NullCheckpointer
from rrgtrain.state.rundir import RunDir
from rrgtrain.train.best import BeforeConvergence, Best, judged_settings
from rrgtrain.train.sft import train_sft
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import policy_and_prompts, recipe, sft_run, studies
from tests.rrgtrain.train.loops import Flat, Length, state, trained

BY = {"eval.best_by": EvalSettings().best_by}


def offered(best: Best, scores: Sequence[float], first: int = 0) -> Best:
    """Validations of a policy whose weights all hold the number of the validation."""
    for k, f1 in enumerate(scores, start=first):
        fill(best.policy, float(k))
        best.offer(10 * (k + 1), f1)
    return best


@torch.no_grad()
def fill(policy: Policy, value: float) -> None:
    for parameter in policy.model.parameters():
        parameter.fill_(value)


def restored(best: Best) -> float:
    best.restore()
    values = {float(v) for p in best.policy.model.parameters() for v in (p.min(), p.max())}
    assert len(values) == 1
    return values.pop()


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([0.3, 0.6, 0.62, 0.63], 0),  # converged at the second: the others bring less than 0.05
        ([0.3, 0.6, 0.62, 0.7, 0.71], 2),  # what came before 0.7, though it was no progress itself
        ([0.3, 0.6, 0.4, 0.66, 0.6], 2),  # and though it was worse
        ([0.5, 0.4, 0.3], 0),  # nothing came before the first
        ([0.5], 0),
        ([0.2, 0.4, 0.6], 1),  # still climbing at the end
    ],
)
def test_the_validation_before_the_last_that_brought_something(scores, kept):
    best = offered(BeforeConvergence(tiny_policy(), BY, NullCheckpointer(), 0.05), scores)
    assert (best.step, best.value) == (10 * (kept + 1), scores[kept])
    assert restored(best) == kept


@pytest.mark.parametrize("cut", range(1, 5))
def test_it_goes_on_after_a_resume(cut: int) -> None:
    scores = [0.3, 0.6, 0.62, 0.7, 0.71]
    first = offered(BeforeConvergence(tiny_policy(), BY, NullCheckpointer(), 0.05), scores[:cut])
    later = BeforeConvergence(tiny_policy(), BY, NullCheckpointer(), 0.05)
    later.load_state_dict(first.state_dict())
    offered(later, scores[cut:], first=cut)
    assert (later.step, later.value, restored(later)) == (30, 0.62, 2)


@pytest.mark.parametrize("kind", ["Best", "BeforeConvergence"])
def test_a_value_of_another_metric_is_not_compared(kind: str) -> None:
    def made(by: str) -> Best:
        given = tiny_policy(), {"eval.best_by": by}, NullCheckpointer()
        return Best(*given) if kind == "Best" else BeforeConvergence(*given, 0.0)

    first, other = offered(made("micro_f1"), [0.3, 0.6]), made("reward")
    with pytest.warns(UserWarning, match=r"with eval.best_by=micro_f1 \(now reward\); they are"):
        other.load_state_dict(first.state_dict())
    assert (other.value, other.step) == (-math.inf, first.step)
    assert restored(other) == restored(first), "they stay until there is something to compare"
    offered(other, [0.1], first=5)
    assert (other.value, restored(other)) == (0.1, 5.0)


def test_of_a_list_the_best_by_each_is_written(tmp_path: Path) -> None:
    names = recipe("eval.best_by=[reward, f1/Edema, micro_f1]").eval.chosen_by
    best = Best(tiny_policy(), {"eval.best_by": names}, NullCheckpointer())
    rows = [(0.1, [0.5, 0.2]), (0.4, [0.6, 0.2]), (0.3, [0.1, 0.9])]
    for k, (value, others) in enumerate(rows):
        fill(best.policy, float(k))
        best.offer(10 * k, value, others)
        again = Best(best.policy, {"eval.best_by": names}, NullCheckpointer())
        again.load_state_dict(best.state_dict())
        best = again
    best.save(tmp_path / "rl", {})
    assert restored(best) == 1.0
    written = {path.name: fill_of(path) for path in tmp_path.iterdir()}
    assert written == {"rl": 1.0, "rl-f1-Edema": 1.0, "rl-micro_f1": 2.0}


def fill_of(checkpoint: Path) -> float:
    (value,) = {float(t.max()) for t in load_file(checkpoint / "model.safetensors").values()}
    return value


def judged_by(*words: str) -> dict:
    asked = recipe(*words)
    return judged_settings(asked.eval, asked.reward)


def test_no_value_of_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = []
    for value in ("SECRET:one", "SECRET:two"):
        monkeypatch.setenv("READER", value)
        judged.append(judged_by("reward.labeller=${oc.env:READER}"))
    assert judged[0] != judged[1] and "SECRET" not in str(judged)
    first = offered(Best(tiny_policy(), judged[0], NullCheckpointer()), [0.62])
    with pytest.warns(UserWarning, match=r"validations with another reward.labeller; they are"):
        Best(tiny_policy(), judged[1], NullCheckpointer()).load_state_dict(first.state_dict())


def test_validations_of_other_reports_are_not_compared() -> None:
    """0.62 of the first 32 studies may be more than any value of all of them."""
    short, whole = judged_by("eval.limit=32"), judged_by("eval.limit=64", "reward.terms.words=1")
    first = offered(Best(tiny_policy(), short, NullCheckpointer()), [0.62])
    later = Best(tiny_policy(), whole, NullCheckpointer())
    with pytest.warns(UserWarning, match=r"validations with eval.limit=32 \(now 64\); they are"):
        later.load_state_dict(first.state_dict())
    assert offered(later, [0.5], first=4).value == 0.5 and restored(later) == 4.0
    # the terms of the reward move no F1, but a reward
    same = Best(
        tiny_policy(), judged_by("eval.limit=32", "reward.terms.words=1"), NullCheckpointer()
    )
    same.load_state_dict(first.state_dict())
    assert same.value == 0.62
    # of options a digest is kept, which tells nobody anything
    plain, other = (judged_by(f"reward.options.rules.a={number}") for number in (1, 2))
    first = offered(Best(tiny_policy(), plain, NullCheckpointer()), [0.62])
    with pytest.warns(UserWarning, match=r"validations with another reward.options; they are"):
        Best(tiny_policy(), other, NullCheckpointer()).load_state_dict(first.state_dict())
    judged = [judged_by("eval.best_by=reward", *more) for more in ([], ["reward.margin=0.5"])]
    assert judged[0] != judged[1] and json.loads(json.dumps(judged[0])) == judged[0]


class OfDisk(NullCheckpointer):
    """Keeps every weight that is asked for; those of the steps in `gone` are lost."""

    def __init__(self) -> None:
        self.gone: set[int] = set()

    def keep(self, step: int, needed: Collection[int]) -> bool:
        return True

    def require(self, step: int) -> None:
        if step in self.gone:
            raise UserError(f"the checkpoint rl-{step} is gone")


@pytest.mark.parametrize("gone", [10, 20])
def test_weights_that_are_gone_are_told_at_the_resume(gone: int) -> None:
    held = OfDisk()
    first = offered(BeforeConvergence(tiny_policy(), BY, held, 0.05), [0.3, 0.6])
    later = BeforeConvergence(tiny_policy(), BY, held, 0.05)
    later.load_state_dict(first.state_dict())
    held.gone = {gone}
    with pytest.raises(UserError, match=f"rl-{gone} is gone"):
        later.load_state_dict(first.state_dict())


@pytest.mark.parametrize(("choose", "step"), [("best", 6), ("before_convergence", 2)])
def test_reinforcement_learning_starts_from_what_was_chosen(choose, step, tmp_path):
    """The policy ends with those weights, and they are what the checkpoint holds."""
    policy, prompts = policy_and_prompts()
    scores, seen = [0.2, 0.6, 0.61, 0.3], []

    def validate() -> dict[str, float]:
        seen.append({n: p.detach().clone() for n, p in policy.model.named_parameters()})
        return {"micro_f1_13": scores[len(seen) - 1]}

    cfg = recipe("sft.steps=8", "sft.eval_every=2", "sft.min_delta=0.05", f"sft.choose={choose}")
    with RunDir.create(tmp_path / "run") as run, RunLog(run) as log:
        out = run.checkpoints / "sft"
        result = train_sft(sft_run(policy, prompts, studies(5), cfg, validate, out, log))
    assert result.best_step == step and result.best_value == scores[step // 2 - 1]
    for found in (policy, load_policy(result.best)):
        wanted = seen[step // 2 - 1]
        assert all(torch.equal(p, wanted[n]) for n, p in found.model.named_parameters())


# A run that learns nothing says so, and its start competes for the best weights.
def test_a_run_without_a_group_that_differs_warns_once(tmp_path, recwarn):
    def told() -> list[str]:
        lines = [str(w.message) for w in recwarn if "rl.flat_steps=2" in str(w.message)]
        recwarn.clear()
        return lines

    words = ["rl.algorithm=dr_grpo", "rl.steps=4", "rl.flat_steps=2", "rl.eval_every=9"]
    trained(tmp_path / "warned", recipe(*words), rewards=Flat())
    assert len(told()) == 1
    trained(tmp_path / "learns", recipe(*words), rewards=Length())
    trained(tmp_path / "never", recipe(*words, "rl.flat_steps=0"), rewards=Flat())
    trained(tmp_path / "oracle", recipe(*words, "rl.algorithm=orapo"), rewards=Flat())
    assert not told()


def test_the_start_competes_for_the_best(tmp_path: Path) -> None:
    cfg = recipe("rl.algorithm=dr_grpo", "rl.lr=0.05", "rl.steps=2", "rl.eval_every=1")
    for scores, best in (((0.9, 0.2, 0.3), 0), ((0.1, 0.2, 0.3), 2), ((0.3, 0.2, 0.3), 2)):
        result, policy, rows, seen = trained(
            tmp_path / str(scores), cfg, scores=scores, rewards=Length()
        )
        assert (result.best_step, result.best_value) == (best, scores[best])
        assert [r["step"] for r in rows if r["phase"] == "dr_grpo_val"] == [-1, 0, 1]
        kept = state(load_policy(result.best))
        assert all(torch.equal(p, seen[best][n]) for n, p in state(policy).items())
        assert all(torch.equal(p, seen[best][n]) for n, p in kept.items())
    assert any(not torch.equal(p, seen[0][n]) for n, p in state(policy).items())
