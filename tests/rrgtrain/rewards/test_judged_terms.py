"""Terms by tiny models and by judges; an answer that cannot be read is never a score."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rrgclinical.chexbert import CheXbertLabeller
from rrgclinical.ratescore import SentenceEmbedder
from rrgclinical.rules import split_sentences
from rrgdata.study import Study
from rrgpolicy.model.prompt import EncodedPrompt
from rrgreport.run_files import read_metrics
from rrgtrain.algorithms.group import Group, Member, read_members, without
from rrgtrain.cli import main
from rrgtrain.config import load_config
from rrgtrain.errors import RewardError, UserError
from rrgtrain.integrations.trl_rewards import trl_reward
from rrgtrain.rewards import RewardService
from rrgtrain.schema import JudgeSettings, Recipe, RewardSettings
from rrgtrain.train import Batch
from rrgtrain.train.step_log import reward_rows
from tests.rrgclinical.chat.server import Reply, serving
from tests.rrgclinical.chexbert import tiny as chexbert
from tests.rrgclinical.radcliq.test_radcliq import write_folder
from tests.rrgclinical.radgraph import archives
from tests.rrgclinical.ratescore.tiny import write_embedder, write_tiny
from tests.rrgtrain.runs import At, command, rows, started

REPORTS = ["No effusion. Large heart.", "Edema.", "", "No effusion. No effusion.", " \n"]
REFERENCES = ["Large heart. No effusion.", "No edema. Clear.", "Edema.", "No effusion.", "Edema."]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folders = {n: tmp_path_factory.mktemp(n) for n in ("radgraph", "chexbert", "bertscore", "sdr")}
    chexbert.write_folder(folders["chexbert"])
    write_folder(folders["bertscore"])
    write_embedder(folders["sdr"], [*REPORTS, *REFERENCES])
    weights = str(folders["chexbert"] / "weights.pth")
    return {
        "radgraph": {"weights": str(archives.write_archive(folders["radgraph"]))},
        "chexbert": {
            **{"weights": weights, "tokenizer": str(folders["chexbert"])},
            "config": chexbert.CONFIG,
        },
        "bertscore": {"weights": str(folders["bertscore"])},
        "sdr": {"embedder": str(folders["sdr"])},
    }


def test_terms_are_the_metrics_that_are_reported(options) -> None:
    settings = RewardSettings(terms={"bertscore": 1.0, "radcliq": 0.5}, options=options)
    found = RewardService(settings)(REPORTS, REFERENCES)
    judge = RewardService(settings).model("radcliq")
    parts = judge.parts(REPORTS, REFERENCES)
    np.testing.assert_allclose(found["bertscore"], parts.bertscore, atol=1e-6)
    # fewer errors are a higher reward
    np.testing.assert_allclose(found["radcliq"], -judge.score(REPORTS, REFERENCES), atol=1e-6)
    same = RewardService(settings)(REFERENCES[:2], REFERENCES[:2])
    assert (same["radcliq"] > found["radcliq"][:2]).all()


def test_sets_of_sentences_are_compared_both_ways(options) -> None:
    settings = RewardSettings(terms={"sdr": 1.0}, options=options)
    service = RewardService(settings)
    found = service(REPORTS, REFERENCES)["sdr"]
    one = SentenceEmbedder(options["sdr"]["embedder"])

    def vectors(text: str) -> torch.Tensor:
        rows = [one.read([text[a:b]]).vectors for a, b in split_sentences(text)]
        return torch.tensor(np.concatenate(rows)).double()

    for k in (0, 1, 3):
        cosines = vectors(REPORTS[k]) @ vectors(REFERENCES[k]).T
        p, r = float(cosines.max(1).values.mean()), float(cosines.max(0).values.mean())
        assert found[k] == pytest.approx(max(0.0, 2 * p * r / (p + r)), abs=1e-5)
    # order and repetition of sentences change nothing; to say nothing earns nothing
    assert found[[0, 3]] == pytest.approx([1.0, 1.0], abs=1e-5)
    assert found[[2, 4]].tolist() == [0.0, 0.0] and found[1] < 1 - 1e-3
    # each distinct sentence is read once, over batches too
    reader = service.model("sdr")
    computed = reader._embedded.computed
    service([REFERENCES[0]], [REFERENCES[0]])
    assert reader._embedded.computed == computed


@pytest.mark.usefixtures("at_home")
def test_the_papers_three_judges_and_its_extractor_train_together(options, tmp_path, monkeypatch):
    """Random weights in the official layout: it is the path that is shown, not the rewards."""
    ner, embedder = write_tiny(tmp_path, [*REPORTS, *REFERENCES])
    rate = {"ner": ner, "embedder": embedder}
    judges = {name: options[name] for name in ("chexbert", "radgraph")} | {"ratescore": rate}
    files = [
        f"reward.options.{judge}.{key}={value}"
        for judge, values in judges.items()
        for key, value in values.items()
        if key != "config"
    ]
    small = partialmethod(CheXbertLabeller.__init__, config=chexbert.CONFIG)
    monkeypatch.setattr(CheXbertLabeller, "__init__", small)
    paper = load_config(Recipe, "paper/editgrpo", []).reward
    terms = ",".join(f"{term}: {weight}" for term, weight in paper.terms.items())
    by = [f"reward.terms={{{terms}}}", f"reward.labeller={paper.labeller}"]
    more = [f"reward.extractor={paper.extractor}", "rl.steps=2", "deterministic=false"]
    assert main(started(*files, *by, *more)) == 0
    steps = [row for row in rows(tmp_path / "run") if row["phase"] == "editgrpo"]
    assert len(steps) == 2
    assert any(v for row in steps for k, v in row.items() if k.startswith("edits/"))
    for row in steps:
        assert row["reward/total"] == pytest.approx(sum(row[f"reward/{t}"] for t in paper.terms))
        assert all(0 <= row[f"reward/{term}"] <= 1 for term in paper.terms)


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
                done = command("rl", "--resume", "run", **where_run, status=0)
            rows = read_metrics(tmp_path / place / "run" / "metrics.jsonl")
            of_runs.append([row["reward/total"] for row in rows if "reward/total" in row])
            assert sum(row.get("endpoint/green_unreadable", 0) for row in rows) > 0
    assert of_runs[0] == of_runs[1] and len(of_runs[0]) >= 4 and np.isfinite(of_runs[0]).all()
