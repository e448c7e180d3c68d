"""Every step can be made again from its record; samples are kept along the run."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rrgdata.study import Study
from rrgpolicy.model.codec import ReportCodec
from rrgtrain.algorithms import Context, Group, Member, Objective, build_algorithm
from rrgtrain.algorithms.group import members
from rrgtrain.rewards import RewardService
from rrgtrain.run.session import Session
from rrgtrain.schema import Recipe, RlSettings
from rrgtrain.train import Batch
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.step_record import (
    SampleCollector,
    StepRecord,
    StepRecords,
    heaviest,
    recorded,
)
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import groups_of, recipe, studies
from tests.rrgtrain.replay_step import made_again
from tests.rrgtrain.train.loops import trained

SALIENCY = ["token_weights.labeller=distilled", "token_weights.distil_steps=2"]
THINK = ["reward.terms={mccs: 0.75, format: 0.25}", "reward.blocks=think_report"]
FACTS = "reward.terms={facts: 1.0}"
MIXED = "reward.terms={sample_f1: 1.0, bleu2: 0.25}"
SYSTEMS = {
    "EditGRPO": ["rl.algorithm=editgrpo"],
    "EditGRPO, paragraph": ["rl.algorithm=editgrpo", "edit.level=paragraph"],
    "MRG-R1": ["rl.algorithm=grpo", "rl.std=population", *THINK],
    "DEER, rule": ["rl.algorithm=ditpo", "token_weights.kind=tfidf", MIXED],
    "DEER, gradient": ["rl.algorithm=ditpo", MIXED, "reward.starts={bleu2: 0.8}", *SALIENCY],
    "OraPO": ["rl.algorithm=orapo", FACTS, "rl.prompts=5"],
    "OraPO, SFT": ["rl.algorithm=orapo", "oracle.loss=sft", FACTS],
    "all": ["rl.algorithm=editgrpo+ditpo+orapo", FACTS, *SALIENCY],
}


def read(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


def opened(cfg: Recipe) -> Session:
    policy = tiny_policy()
    given = studies(5)
    rewards = RewardService(cfg.reward)
    rewards.fit(given)
    return Session(cfg, {"train": given}, policy, PromptLoader(policy, "short"), rewards)


def run_and_record(name: str, out: Path, *more: str) -> tuple[Recipe, Path]:
    """Two steps of a system, the second on the first one's studies; the folder of records."""
    cfg = recipe(*SYSTEMS[name], *more)
    session, folder = opened(cfg), out / "steps"
    given, record = session.studies["train"], StepRecords(folder, cfg.log)
    trained(out, cfg, rewards=session.rewards, given=given, policy=session.policy, record=record)
    return cfg, folder


class Replay:
    """Makes records again in a process that knows nothing of their run."""

    def __init__(self, cfg: Recipe) -> None:
        self.session, self.algorithm = opened(cfg), build_algorithm(cfg)
        self.algorithm.prepare(Context(self.session.policy.codec, self.session.studies["train"]))
        self.start = copy.deepcopy(self.algorithm.state_dict())

    def differing(self, record: dict[str, Any]) -> set[str]:
        """The fields that do not come out the same; an earlier record leaves nothing behind."""
        self.algorithm.load_state_dict(copy.deepcopy(self.start))
        return {f.field for f in made_again(record, self.session, self.algorithm) if f.difference}


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_step_of_every_system_can_be_made_again(name: str, tmp_path: Path) -> None:
    cfg, folder = run_and_record(name, tmp_path / "run")
    assert [p.name for p in sorted(folder.iterdir())] == ["000000.json.gz", "000001.json.gz"]
    record = read(folder / "000001.json.gz")
    origins = {m["origin"] for g in record["groups"] for m in g["members"]}
    assert ("edited" in origins) == ("EditGRPO" in name or name == "all")
    assert ("oracle" in origins) == ("OraPO" in name or name == "all")
    assert (record["weight"] is not None) == ("DEER" in name or name == "all")
    assert (record["preference"] is not None) == (name in ("OraPO", "all"))
    assert (record["likelihood"] is not None) == (name == "OraPO, SFT")
    assert Replay(cfg).differing(record) == set()


def test_how_often_and_what_is_written(tmp_path: Path) -> None:
    _, folder = run_and_record("MRG-R1", tmp_path / "a", "rl.steps=5", "log.records=2")
    assert [p.name[:6] for p in sorted(folder.iterdir())] == ["000000", "000002", "000004"]
    record = read(folder / "000004.json.gz")
    assert record["step"] == 4 and record["progress"] == 0.8
    _, none = run_and_record("MRG-R1", tmp_path / "b", "log.records=0")
    assert not none.exists()
    _, again = run_and_record("MRG-R1", tmp_path / "c", "rl.steps=5", "log.records=2")
    for path in folder.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes()


def test_what_is_recorded_stands_in_the_order_of_the_members() -> None:
    """Replay writes by the same function, so an order of its own would look right to it."""
    policy = tiny_policy()
    groups = groups_of(policy, [["Edema.", "No edema."], ["Effusion."]], edited=True)
    flat = members(groups)
    tokens = sum(len(m.ids) for m in flat)
    generator = torch.Generator().manual_seed(0)
    advantages, weight = (torch.randn(n, generator=generator) for n in (len(flat), tokens))
    objective = Objective(advantages, weight=weight, group_weight=torch.tensor([0.25, 0.75]))
    scores = {"total": np.arange(float(len(flat)))}
    batch = Batch(groups, scores=scores, objective=objective)
    record = recorded(StepRecord(3, 0.5, batch, {}, policy.codec))
    assert torch.equal(torch.tensor(record["advantages"]), advantages)
    assert torch.equal(torch.tensor(record["weight"]), weight)
    assert record["group_weight"] == [0.25, 0.75]
    assert record["rewards"]["total"] == list(range(len(flat)))
    assert [g["index"] for g in record["groups"]] == [10, 11]
    texts = [m["text"] for g in record["groups"] for m in g["members"]]
    assert texts == [m.text for m in flat] and len(set(texts)) == len(flat) == 4


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
    return StepRecord(step, 0.0, made, {}, codec)


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


def test_an_edit_is_kept_with_both_rewards() -> None:
    kept = SampleCollector()
    kept(edits(4, [edited_group(0, "a", "b"), edited_group(1, "d")]))
    first, second, third = kept.kept_edits
    assert (first.id, first.before, first.after) == ("s0", "report 0", "edit 0")
    assert (first.reward_before, first.reward_after) == (1.0, 3.0)
    assert (second.reward_before, second.reward_after) == (2.0, 4.0)
    assert (third.id, third.reward_before, third.reward_after) == ("s1", 5.0, 6.0)
    assert first.step == 4 and first.reference == "reference"
    assert [s.steps[0][0] for s in kept.kept_edits] == ["a", "b", "d"]


def test_the_first_of_each_rule_then_some_along_the_run() -> None:
    kept = SampleCollector(edits=4)
    for step, letters in ((0, "ddd"), (1, "dc"), (5, "d"), (12, "dd"), (30, "d"), (60, "d")):
        kept(edits(step, [edited_group(0, *letters)]))
    found = [(s.step, s.steps[0][0]) for s in kept.kept_edits]
    assert found == [(0, "d"), (1, "c"), (12, "d"), (30, "d")]


def weighed_groups(step: int, top: float = 3.0) -> StepRecord:
    """Three members: a plain one, the heaviest, and an edited one that is heavier still."""
    study = Study("s", "train", "ref", None, ())
    members = (
        Member(torch.tensor([5, 6, 0]), "ab"),
        Member(torch.tensor([7, 8, 9, 0]), "cde"),
        Member(torch.tensor([7, 8]), "fg", "edited", parent=0),
    )
    group = Group(0, study, None, members)  # type: ignore[arg-type]
    weight = torch.tensor([1.0, 1.0, 1.0, 1.0, top, 2.0, 1.0, 9.0, 1.0])
    advantages = torch.tensor([-1.0, 0.5, 0.5])
    return batch(step, [group], [0.0, 0.75, 0.75], Objective(advantages, weight=weight))


def test_the_heaviest_sampled_report_of_a_batch() -> None:
    found = heaviest(weighed_groups(7))
    assert found is not None
    assert (found.id, found.step, found.reference) == ("s", 7, "ref")
    assert list(found.pieces) == [("c", 1.0), ("d", 3.0), ("e", 2.0)]
    assert (found.reward, found.advantage) == (0.75, 0.5)


def test_the_first_and_the_latest_weighed_reports_stay() -> None:
    kept = SampleCollector(weighed=3)
    for step in range(0, 60, 4):
        kept(weighed_groups(step))
    assert [s.step for s in kept.kept_weights] == [0, 36, 48]


@pytest.mark.parametrize("cut", [0, 20, 44])
def test_a_resumed_run_keeps_the_same(cut: int) -> None:
    whole, first, later = (SampleCollector(weighed=3) for _ in range(3))
    for step in range(60):
        whole(weighed_groups(step))
        (first if step < cut else later)(weighed_groups(step))
        if step == cut - 1:
            later.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [s.step for s in whole.samples()] == [s.step for s in later.samples()]
