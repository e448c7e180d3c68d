"""The loop of reinforcement learning: same seed same bits, counts, the best weights, its log."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rrgclinical import build_labeller
from rrgdata.study import Study
from rrgpolicy.model.policy import Policy
from rrgtrain.algorithms import Group, Member, build_algorithm
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import Recipe
from rrgtrain.train import rl as rl_module
from rrgtrain.train import rl_run as run_module
from rrgtrain.train.step_record import StepRecord
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import accumulate, policy_and_prompts, recipe, run_of, sampled, studies
from tests.rrgtrain.train.loops import Flat, Length, state, trained


def without_time(rows: list[dict]) -> list[dict]:
    measured = ("time", "seconds/", "speed/", "memory/", "reward_seconds/", "texts/")
    return [{k: v for k, v in row.items() if not k.startswith(measured)} for row in rows]


@pytest.mark.parametrize("algorithm", ["editgrpo", "dr_grpo"])
def test_the_same_seed_gives_the_same_metrics_and_weights(algorithm: str, tmp_path: Path) -> None:
    runs = []
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        cfg = recipe(f"rl.algorithm={algorithm}", f"seed={seed}", "rl.beta=0.01", "rl.lr=0.01")
        rewards = None if algorithm == "editgrpo" else Length()
        runs.append(trained(tmp_path / name, cfg, rewards=rewards))
    (_, one, rows, _), (_, two, again, _), (_, other, others, _) = runs
    assert without_time(rows) == without_time(again)
    assert all(torch.equal(p, state(two)[n]) for n, p in state(one).items())
    start = state(tiny_policy())
    assert any(not torch.equal(p, start[n]) for n, p in state(one).items()), "nothing was trained"
    assert without_time(rows) != without_time(others)
    assert any(not torch.equal(p, state(other)[n]) for n, p in state(one).items())


def test_rewards_edits_and_rollouts_are_counted(tmp_path: Path) -> None:
    cfg = recipe("rl.algorithm=editgrpo", "rl.group=6", "rl.steps=2")
    records: list[StepRecord] = []
    result, _, rows, _ = trained(tmp_path, cfg, record=records.append)
    assert result.rollouts == 2 * 3 * 3
    assert [record.step for record in records] == [0, 1]
    members = [m for record in records for g in record.batch.groups for m in g.members]
    made = sum(m.origin == "edited" for m in members)
    unchanged = result.edits.get("edits/unchanged", 0)
    assert made + unchanged == 18 and made > 0
    # a report may take several: what a deletion has emptied is filled
    steps = Counter(f"edits/{rule}" for m in members for rule, _, _ in m.steps)
    assert steps.total() >= made
    assert {k: n for k, n in result.edits.items() if k != "edits/unchanged"} == steps
    rows = [row for row in rows if row["phase"] == "editgrpo"]
    for record, row in zip(records, rows, strict=True):
        step, groups, total = record.step, record.batch.groups, record.batch.rewards
        assert row["step"] == step
        assert row["reward/total"] == pytest.approx(float(total.mean()))
        flat = [m for g in groups for m in g.members]
        edited = [float(v) for v, m in zip(total, flat, strict=True) if m.origin == "edited"]
        assert row["reward_edited"] == pytest.approx(np.mean(edited))
    assert set(result.phases) == {"rollout", "edit", "reward", "update", "validate"}
    assert 0 < sum(result.phases.values()) <= result.seconds


@pytest.mark.parametrize(
    ("beta", "needed", "kept"), [(0, False, 0), (0.01, False, 1), (0, True, 1)]
)
def test_a_reference_is_kept_only_where_something_compares_with_it(
    beta: float, needed: bool, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Policy] = []
    real = run_module.named_reference
    monkeypatch.setattr(
        run_module,
        "named_reference",
        lambda p, *more, **named: made.append(p) or real(p, *more, **named),
    )
    cfg = recipe("rl.algorithm=dr_grpo", f"rl.beta={beta}", "rl.steps=1", "rl.eval_every=1")
    algorithm = replace(build_algorithm(cfg), needs_reference=needed)
    trained(tmp_path, cfg, rewards=Length(), algorithm=algorithm)
    assert len(made) == kept


def test_groups_without_variance_train_nothing(tmp_path: Path) -> None:
    cfg = recipe("rl.algorithm=dr_grpo", "rl.lr=0.1")
    result, policy, rows, _ = trained(tmp_path, cfg, rewards=Flat())
    assert result.zero_variance == 1.0
    assert [r["zero_variance"] for r in rows if r["phase"] == "dr_grpo"] == [1.0, 1.0]
    start = state(tiny_policy())
    assert all(torch.equal(p, start[n]) for n, p in state(policy).items())


def sampled_ids(cfg: Recipe, indices: list[int], step: int = 0) -> list[list[list[int]]]:
    policy, prompts = policy_and_prompts()
    groups = sampled(run_of(policy, prompts, studies(5), cfg), indices, step)
    assert policy.model.training, "left ready for the update"
    for group, index in zip(groups, indices, strict=True):
        assert group.index == index and group.study == studies(5)[index]
        for m in group.members:
            assert m.text == policy.codec.decode(m.ids) and m.origin == "sampled"
            assert m.finished == (int(m.ids[-1]) in policy.eos_ids)
            assert len(m.ids) <= cfg.rl.max_new_tokens
            assert m.sampler_logps is not None and m.sampler_logps.shape == m.ids.shape
    return [[m.ids.tolist() for m in g.members] for g in groups]


def test_reports_depend_on_seed_step_study_and_place_alone() -> None:
    cfg = recipe("rl.algorithm=dr_grpo")
    one = sampled_ids(cfg, [0, 3, 1])
    assert sampled_ids(cfg, [1, 0, 3]) == [one[2], one[0], one[1]]
    assert sampled_ids(cfg, [0, 3, 1], step=1) != one
    assert sampled_ids(recipe("rl.algorithm=dr_grpo", "seed=1"), [0, 3, 1]) != one
    assert len({tuple(ids) for group in one for ids in group}) == 12


def test_a_study_that_comes_twice_draws_new_reports() -> None:
    # a seed under which no two of the eight are empty
    twice = sampled_ids(recipe("rl.algorithm=dr_grpo", "seed=1"), [2, 2])
    assert len({tuple(ids) for group in twice for ids in group}) == 8


def test_references_are_read_while_reports_are_written(tmp_path, monkeypatch):
    """Each waits for the other to have begun: one after the other, neither would."""
    sampling, reading = threading.Event(), threading.Event()
    met: list[bool] = []
    rules = build_labeller("rules")

    class Slow:
        def label(self, reports: Sequence[str]) -> np.ndarray:
            if threading.current_thread() is not threading.main_thread():
                reading.set()
                met.append(sampling.wait(300))
            return rules.label(reports)

    real = rl_module.sample_groups

    def sample(*arguments: object) -> list[Group]:
        sampling.set()
        met.append(reading.wait(300))
        return real(*arguments)  # type: ignore[arg-type]

    cfg = recipe("rl.algorithm=dr_grpo", "rl.steps=1", "reward.terms={label_f1: 1.0}")
    service = RewardService(cfg.reward, Slow())
    service(["Edema."], ["Edema."])
    asked = service.labeller.results.asked
    monkeypatch.setattr(rl_module, "sample_groups", sample)
    _, _, rows, _ = trained(tmp_path, cfg, rewards=service)
    assert met == [True, True]
    (row,) = [r for r in rows if r["phase"] == "dr_grpo"]
    # 3 studies ahead, then 12 reports beside 12 references, every one of which is there
    assert row["texts/labeller_asked"] == service.labeller.results.asked - asked == 3 + 24
    assert row["texts/labeller_computed"] <= 3 + 12
    assert row["texts/labeller_reused"] == 1 - row["texts/labeller_computed"] / 27
    assert row["reward_seconds/label_f1"] > 0 and row["reward_seconds/reference labels"] > 0


def test_a_policy_whose_weights_have_blown_up_stops_in_one_line() -> None:
    policy, prompts = policy_and_prompts()
    with torch.no_grad():
        policy.language_model.norm.weight[0] = float("nan")
    cfg = recipe("rl.algorithm=dr_grpo")
    run = run_of(policy, prompts, studies(5), cfg)
    # before the first step no learning rate can have done it
    for step, told in (
        (3, "at step 3.*lower rl.lr$"),
        (0, "at step 0: the checkpoint tiny is bro"),
    ):
        with pytest.raises(UserError, match=f"no finite log-probability {told}") as e:
            sampled(run, [0, 1], step)
        assert "\n" not in str(e.value)


def test_another_engines_log_probs_weigh_the_tokens_they_differ_on():
    """Put what vLLM reports into the sampler correction; an edit, which nobody drew, weighs 1."""
    cfg = recipe("rl.algorithm=dr_grpo", "rl.beta=0", "rollout.cap=1.5")
    policy, prompts = policy_and_prompts()
    algorithm = build_algorithm(cfg)
    (group,) = sampled(run_of(policy, prompts, studies(5), cfg), [0], 0)
    drawn = group.members[0]
    assert not drawn.corrected

    def gradient(member: Member, advantages: tuple[float, float] = (1.0, 1.0)) -> torch.Tensor:
        policy.model.zero_grad(set_to_none=True)
        members = (member, replace(drawn, origin="edited", sampler_logps=None))
        accumulate(
            policy,
            None,
            [replace(group, members=members)],
            torch.tensor(advantages),
            algorithm.loss,
            cfg.rl,
        )
        weight = policy.language_model.embed_tokens.weight
        assert weight.grad is not None
        return weight.grad.clone()

    edit = gradient(drawn, (0.0, 1.0))
    own = gradient(drawn) - edit
    for gap, factor in ((0.0, 1.0), (0.2, math.exp(0.2)), (5.0, 1.5)):
        told = replace(drawn, sampler_logps=drawn.sampler_logps - gap, corrected=True)
        torch.testing.assert_close(gradient(told) - edit, factor * own, rtol=1e-3, atol=1e-5)
    assert own.abs().max() > 1e-3


# The loop keeps no batch alive, and counts its time where it was spent.
def test_a_batch_is_gone_before_the_next_is_drawn(tmp_path: Path) -> None:
    """Its images, where the cache of prompts is full, are as large as those of the next."""
    groups: list[weakref.ref[Group]] = []
    left: list[int] = []

    class Asks(Length):
        def prefetch(self, references: Sequence[Study | str]) -> Future[None]:
            gc.collect()
            left.append(sum(group() is not None for group in groups))
            return super().prefetch(references)

    def sees(record: StepRecord) -> None:
        groups.extend(map(weakref.ref, record.batch.groups))

    # Where another test's rubbish raises as it goes, pytest keeps the frames that it went in.
    gc.collect()
    cfg = recipe("rl.algorithm=dr_grpo", "rl.steps=3")
    trained(tmp_path / "run", cfg, rewards=Asks(), record=sees)
    assert groups and left == [0, 0, 0]


def test_missing_reports_are_refused_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setattr(rl_module, "sample_groups", None)
    given = [*studies(2), replace(studies(3)[2], report=None)]
    with pytest.raises(UserError, match=r"rl.algorithm=editgrpo.*study train-2 has none; use"):
        trained(tmp_path, recipe("rl.algorithm=editgrpo"), given=given)
