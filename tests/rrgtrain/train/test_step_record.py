"""A step's reports are recorded in their order; samples are kept along the run."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rrgdata.study import Study
from rrgpolicy.model.codec import ReportCodec
from rrgtrain.algorithms import Group, Member, Objective
from rrgtrain.algorithms.group import members
from rrgtrain.schema import LogSettings, RlSettings
from rrgtrain.train import Batch, step_record
from rrgtrain.train.step_record import StepRecord, StepRecords, recorded, samples_of
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import groups_of, recipe
from tests.rrgtrain.train.loops import trained


def test_how_often_and_what_is_written(tmp_path: Path) -> None:
    """All reports of a step with edits and an oracle, the same bytes in each run."""
    words = ["rl.algorithm=editgrpo+orapo", "reward.terms={facts: 1.0}"]

    def records(out: str, *more: str) -> Path:
        cfg, folder = recipe(*words, "rl.steps=3", *more), tmp_path / out / "steps"
        trained(tmp_path / out, cfg, record=StepRecords(folder, cfg.log))
        return folder

    folder, again = (records(out, "log.records=2") for out in ("a", "b"))
    assert [p.name[:6] for p in sorted(folder.iterdir())] == ["000000", "000002"]
    for path in folder.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes()
    reports = json.loads(gzip.decompress((folder / "000002.json.gz").read_bytes()))
    of_origin = {report["origin"]: report for report in reports}
    assert of_origin["edited"]["edit"] and of_origin["sampled"]["edit"] == []
    assert len(of_origin["sampled"]["notes"]["facts"]["truth"]) == 14
    assert "rewards" not in of_origin["oracle"] and "total" in of_origin["sampled"]["rewards"]


def test_what_is_recorded_stands_in_the_order_of_the_members() -> None:
    groups = groups_of(tiny_policy(), [["Effusion."], ["Edema.", "No edema."]], edited=True)
    flat = members(groups)
    advantages = torch.randn(len(flat), generator=torch.Generator().manual_seed(0))
    notes: list[dict[str, Any]] = [{"row": k} for k in range(len(flat))]
    scores = {"total": np.arange(float(len(flat)))}
    batch = Batch(groups, scores=scores, notes={"mine": notes})
    batch = batch.with_objective(advantages, RlSettings())
    reports = recorded(StepRecord(0, batch, tiny_policy().codec))
    assert [r["text"] for r in reports] == [m.text for m in flat]
    assert [r["advantage"] for r in reports] == pytest.approx(advantages.tolist())
    assert [r["rewards"]["total"] for r in reports] == list(range(len(flat)))
    assert [r["notes"]["mine"] for r in reports] == notes
    assert [r["parent"] for r in reports] == [None, 0, None, None, 3]


NO_IDS = torch.zeros(0, dtype=torch.int64)


class Characters:
    """A codec whose token i is the character i; 0 ends the turn."""

    @staticmethod
    def char_spans(ids: torch.Tensor) -> list[tuple[int, int]]:
        return [(i, i + (v != 0)) for i, v in enumerate(ids.tolist())]


def batch(step: int, groups: list[Group], rewards: list[float], objective: Objective) -> StepRecord:
    codec: ReportCodec = Characters()  # type: ignore[assignment]
    made = Batch(groups, scores={"total": np.array(rewards)})
    made = made.with_objective(objective, RlSettings())
    return StepRecord(step, made, codec)


def edited_group(index: int, *letters: str) -> Group:
    """A group of as many sampled members as letters, each with an edit by that rule."""
    sampled = [Member(NO_IDS, f"report {k}") for k in range(len(letters))]
    edited = [
        Member(NO_IDS, f"edit {k}", "edited", parent=k, steps=((letter, "out", "in"),))
        for k, letter in enumerate(letters)
    ]
    study = Study(f"s{index}", "train", "reference", None, ())
    return Group(index, study, None, (*sampled, *edited))  # type: ignore[arg-type]


def edits(step: int, groups: list[Group]) -> StepRecord:
    count = sum(len(g.members) for g in groups)
    rewards = [float(i + 1) for i in range(count)]
    return batch(step, groups, rewards, Objective(torch.zeros(count)))


def chosen(folder: Path, *records: StepRecord) -> list[Any]:
    """What is shown of steps that were recorded."""
    write = StepRecords(folder, LogSettings())
    for record in records:
        write(record)
    return [*samples_of(folder, {f"s{k}": "reference" for k in ("", 0, 1)})]


def test_an_edit_is_shown_with_both_rewards(tmp_path: Path) -> None:
    groups = [edited_group(0, "a", "b"), edited_group(1, "d")]
    first, second, third = chosen(tmp_path, edits(4, groups))
    assert (first.id, first.before, first.after) == ("s0", "report 0", "edit 0")
    assert (first.reward_before, first.reward_after) == (1.0, 3.0)
    assert (second.reward_before, second.reward_after) == (2.0, 4.0)
    assert (third.id, third.reward_before, third.reward_after) == ("s1", 5.0, 6.0)
    assert first.step == 4 and first.reference == "reference"
    assert [s.steps[0][0] for s in (first, second, third)] == ["a", "b", "d"]


def test_the_first_of_each_rule_then_some_along_the_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(step_record, "EDITS", 4)
    steps = ((0, "ddd"), (1, "dc"), (5, "d"), (12, "dd"), (30, "d"), (60, "d"))
    shown = chosen(tmp_path, *(edits(step, [edited_group(0, *letters)]) for step, letters in steps))
    found = [(s.step, s.steps[0][0]) for s in shown]
    assert found == [(0, "d"), (1, "c"), (12, "d"), (30, "d")]


def weighed_groups(step: int, top: float = 3.0) -> StepRecord:
    """Three members: a light one, the heaviest, and an edited one that is heavier still."""
    study = Study("s", "train", "ref", None, ())
    members = (
        Member(torch.tensor([5, 6, 0]), "ab"),
        Member(torch.tensor([7, 8, 9, 0]), "cde"),
        Member(torch.tensor([7, 8]), "fg", "edited", parent=0),
    )
    group = Group(0, study, None, members)  # type: ignore[arg-type]
    weight = torch.tensor([1.0, 1.5, 1.0, 1.0, top, 2.0, 1.0, 9.0, 1.0])
    advantages = torch.tensor([-1.0, 0.5, 0.5])
    return batch(step, [group], [0.0, 0.75, 0.75], Objective(advantages, weight=weight))


def test_the_heaviest_sampled_report_of_a_batch(tmp_path: Path) -> None:
    (found,) = chosen(tmp_path, weighed_groups(7))
    assert ["weights" in r for r in recorded(weighed_groups(7))] == [False, True, False]
    assert (found.id, found.step, found.reference) == ("s", 7, "reference")
    assert list(found.pieces) == [("c", 1.0), ("d", 3.0), ("e", 2.0)]
    assert (found.reward, found.advantage) == (0.75, 0.5)


def test_without_weights_that_differ_nothing_is_shown(tmp_path: Path) -> None:
    record = weighed_groups(0)
    for objective in (
        Objective(torch.zeros(3)),
        Objective(torch.zeros(3), weight=torch.full((9,), 2.0)),
    ):
        batch = record.batch.with_objective(objective, RlSettings())
        assert chosen(tmp_path, replace(record, batch=batch)) == []


def test_the_first_and_the_latest_weighed_reports_stay(tmp_path: Path) -> None:
    shown = chosen(tmp_path, *map(weighed_groups, range(0, 80, 4)))
    assert [s.step for s in shown] == [0, 48, 60, 72]
