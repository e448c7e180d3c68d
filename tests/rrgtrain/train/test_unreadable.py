"""An answer that cannot be read stops a run, or its report leaves group and mean; never a score."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rrgclinical.common.errors import UserError
from rrgdata.study import Study
from rrgpolicy.model.prompt import EncodedPrompt
from rrgreport.run_files import read_metrics
from rrgtrain.algorithms.group import Group, Member, read_members, without
from rrgtrain.errors import RewardError
from rrgtrain.integrations.trl_rewards import trl_reward
from rrgtrain.rewards import RewardService
from rrgtrain.schema import JudgeSettings, RewardSettings
from rrgtrain.train.batch import Batch
from rrgtrain.train.step_log import reward_rows
from tests.rrgclinical.chat.server import Reply, serving
from tests.rrgtrain.runs import At, command, started

GREEN = """[Clinically Significant Errors]:
(a) False: 1. One.

[Matched Findings]:
1. One.
"""
CRIMSON = {
    "reference_findings": [{"id": "R1", "clinical_significance": "urgent"}],
    "predicted_findings": [{"id": "P1", "clinical_significance": "urgent"}],
    "matched_findings": [{"ref_id": "R1", "pred_id": "P1"}],
    "errors": {"false_findings": [], "missing_findings": [], "attribute_errors": []},
}
BAD = "The candidate report is unreadable."
LEFT_OUT = JudgeSettings(unreadable="leave_out")


def judge(_: int, body: dict[str, Any]) -> Reply:
    """Answer in each judge's form, but for a report with the word "odd"."""
    question = json.dumps(body)
    if "odd" in question:
        return Reply(BAD)
    if "reference_findings" in question:
        return Reply(json.dumps(CRIMSON))
    if "Matched Findings" in question:
        return Reply(GREEN)
    return Reply(json.dumps({"facts": []}))


def service(url: str, **settings: Any) -> RewardService:
    where = {"endpoint": url, "model": "m", "timeout": 5.0}
    terms = {"green": 1.0, "crimson": 1.0, "facts": 1.0, "bleu4": 1.0}
    options = {name: where for name in ("green", "crimson", "facts")}
    return RewardService(RewardSettings(terms=terms, options=options, **settings))


def test_what_cannot_be_read_is_no_number_in_each_judges_term() -> None:
    with serving(judge) as server:
        scores = service(server.url, judge=LEFT_OUT)(["Edema.", "odd", "Mass."], ["Edema."] * 3)
        for name in ("green", "crimson", "facts", "total"):
            assert np.isnan(scores[name]).tolist() == [False, True, False], name
        assert not np.isnan(scores["bleu4"]).any()
        for name in ("green", "crimson", "facts"):
            assert "answered twice in a form" in scores.notes[name][1]["unreadable"]
        json.dumps(scores.notes, allow_nan=False)
        with pytest.raises(RewardError, match="meet the same answer when the run is resumed, unl"):
            service(server.url)(["Edema.", "odd"], ["Edema."] * 2)


def test_more_than_a_share_stops() -> None:
    bound = JudgeSettings(unreadable="leave_out", most=0.02)
    with serving(judge) as server:
        scored = service(server.url, judge=bound)
        reports = [f"Report {i}." for i in range(97)]
        scored([*reports, "odd", "odd 2"], ["Edema."] * 99)
        scored(["Report 100."], ["Edema."])  # 2 of 100
        with pytest.raises(RewardError, match=r"3 of 101 reports cannot be read, more .*=0.02"):
            scored(["odd 3"], ["Edema."])


def test_a_scorecard_leaves_the_metric_out() -> None:
    with serving(judge) as server:
        measured = service(server.url, judge=LEFT_OUT).measure(
            ["green", "bleu4"], ["Edema.", "odd"], ["Edema."] * 2
        )
        green, words = (value for _, value in measured)
    assert str(green) == "green: 1 of 2 answers cannot be read" and len(words) == 2


def test_only_our_own_groups_take_a_report_without_a_score() -> None:
    with (
        serving(judge) as server,
        pytest.raises(UserError, match="TRL has no place for a report without a score"),
    ):
        trl_reward(service(server.url, judge=LEFT_OUT))


def group(name: str, count: int) -> Group:
    study = Study(name, "", "Edema.", None, ())
    prompt = EncodedPrompt({"input_ids": torch.zeros(1, 1, dtype=torch.int64)}, torch.zeros(1, 1))
    return Group(0, study, prompt, (Member(torch.zeros(1, dtype=torch.int64), ""),) * count)


def test_an_edit_that_is_left_out_has_no_reward_and_is_counted() -> None:
    own = group("a", 2)
    own = replace(own, members=(own.members[0], replace(own.members[1], parent=0, origin="edited")))
    totals = {"total": np.array([1.0, 0.5])}
    left, scores, _ = without(np.array([False, True]), [own], totals, {})
    assert [m.scored for m in left[0].members] == [True, False]
    assert reward_rows(Batch(left, scores=scores))["edits_left_out"] == 1.0


def test_a_member_without_a_score_leaves_its_group() -> None:
    scores = {name: np.array([1.0, np.nan, 2.0, 5.0, 7.0]) for name in ("total", "green")}
    notes = {"green": [{"row": i} for i in range(5)]}
    left, read, told = read_members([group("a", 3), group("b", 2)], scores, notes)
    assert [[m.scored for m in g.members] for g in left] == [[True, False, True], [True] * 2]
    assert read["total"].tolist() == [1.0, 2.0, 5.0, 7.0]
    assert [note["row"] for note in told["green"]] == [0, 2, 3, 4]
    rewards = Batch(left, scores=read).rewards.tolist()
    assert np.isnan(rewards[1]) and rewards[:1] + rewards[2:] == [1.0, 2.0, 5.0, 7.0]


def test_a_run_whose_judge_fails_now_and_then_ends_resumed_or_not(tmp_path: Path) -> None:
    """The same answers are left out again after a resume, and the rewards are the same."""

    def some(_: int, body: dict[str, Any]) -> Reply:
        number = sum(body["messages"][0]["content"].encode())
        return Reply(BAD if not number % 8 else GREEN.replace("1. One", f"{number % 3}. x"))

    with serving(some) as server:
        where = f"{{endpoint: '{server.url}', model: m, timeout: 5}}"
        words = started(
            *("reward.terms={green: 1.0}", f"reward.options={{green: {where}}}", "rl.prompts=4"),
            *("eval.best_by=reward", "reward.judge.unreadable=leave_out", "reward.judge.most=0.5"),
        )
        of_runs = []
        for place, at in (("whole", None), ("cut", At("rrgtrain.train.rl:sample_groups", 3))):
            where_run = {"cwd": tmp_path / place, "world": {"no_proxy": "127.0.0.1"}}
            done = command(*words, at=at, **where_run)
            assert done.status == (75 if at else 0), done.err
            if at:
                done = command("rl", "--resume", "run", **where_run)
                assert done.status == 0, done.err
            rows = read_metrics(tmp_path / place / "run" / "metrics.jsonl")
            of_runs.append([row["reward/total"] for row in rows if "reward/total" in row])
            assert sum(row.get("endpoint/green_unreadable", 0) for row in rows) > 0
    assert of_runs[0] == of_runs[1] and len(of_runs[0]) >= 4 and np.isfinite(of_runs[0]).all()
