"""Evaluation: greedy reports in the studies' order, and what they are compared with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from rrgclinical.labels import OBSERVATIONS, to_binary
from rrgpolicy.rollout import SamplingRequest, generate
from rrgtrain.errors import NotFinite, UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import EvalSettings, RewardSettings
from rrgtrain.train import evaluate as evaluation
from rrgtrain.train.evaluate import (
    Evaluation,
    _whole,
    chosen_value,
    evaluate,
    metric_names,
    require_metric,
    score,
    truth_is_read,
    write_reports,
)
from tests.rrgtrain.common import policy_and_prompts, studies


def test_reports_are_the_greedy_ones_whatever_the_batch() -> None:
    policy, prompts = policy_and_prompts()
    given = studies(5)
    request = SamplingRequest(
        [prompts(s) for s in given],
        group=1,
        max_new_tokens=15,
        seeds=[[0]] * 5,
        greedy=True,
    )
    rollouts = generate(policy, request)
    wanted = [policy.codec.decode(r[0].ids) for r in rollouts]
    for batch in (1, 2, 5, 64):
        settings = EvalSettings(batch=batch, max_new_tokens=15)
        assert write_reports(policy, prompts, given, settings)[0] == wanted
    backwards, _ = write_reports(policy, prompts, given[::-1], settings)
    assert backwards == wanted[::-1]


def test_a_policy_without_finite_log_probs_is_not_scored() -> None:
    """Its likeliest token is the first of the vocabulary, whatever it is shown."""
    policy, prompts = policy_and_prompts()
    with torch.no_grad():
        policy.language_model.norm.weight.fill_(3e38)
    with pytest.raises(NotFinite, match="no finite log-probability for study train-0: its weights"):
        write_reports(policy, prompts, studies(2), EvalSettings(batch=2, max_new_tokens=3))


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_policy_is_restored(training: bool) -> None:
    policy, prompts = policy_and_prompts()
    policy.model.train(training)
    rewards = RewardService(RewardSettings())
    settings = EvalSettings(batch=2, max_new_tokens=5)
    reports, finished = write_reports(policy, prompts, studies(2), settings)
    found = evaluate(reports, studies(2), rewards, settings)
    assert policy.model.training is training and finished == [False, False]
    assert len(found.reports) == 2 and found.rewards["total"].shape == (2,)


def test_the_truth_is_read_in_the_references() -> None:
    given = studies(3)
    rewards = RewardService(RewardSettings())
    perfect = score([s.report or "" for s in given], given, rewards)
    np.testing.assert_array_equal(perfect.truth, np.array([s.labels for s in given]))
    values = perfect.metrics()
    assert values["micro_f1"] == values["accuracy"] == values["reward/label_f1"] == 1.0
    of_classes = {name: values[f"f1/{name}"] for name in OBSERVATIONS}
    present = to_binary(perfect.truth).any(0)  # OraPO's figure 2 draws single findings
    assert present.any() and list(of_classes.values()) == present.tolist()
    assert values["reward"] == pytest.approx(3.0) and values["words"] > 3


def test_the_truth_is_the_labels_that_the_reward_is_against() -> None:
    """An expert's labels, which the report does not say (OraPO, table 5)."""
    expert = tuple(1 if name == "Edema" else 0 for name in OBSERVATIONS)
    given = [replace(s, labels=expert) for s in studies(3)]
    rewards = RewardService(RewardSettings(terms={"accuracy": 1.0}, against="labels"))
    found = score([s.report or "" for s in given], given, rewards)
    np.testing.assert_array_equal(found.truth, np.array([expert] * 3))
    assert score(["There is edema."] * 3, given, rewards).metrics()["micro_f1"] == 1.0
    against_reports = score(found.reports, given, RewardService(RewardSettings()))
    assert (against_reports.truth != found.truth).any()


def test_an_experts_labels_are_the_truth_although_there_are_reports() -> None:
    settings = RewardSettings()
    read = studies(3)
    expert = [replace(study, expert=True) for study in read]
    assert truth_is_read(read, settings) and truth_is_read([*expert[:2], read[2]], settings)
    assert not truth_is_read(expert, settings)
    assert truth_is_read(expert, settings, "report") and not truth_is_read(read, settings, "labels")
    bare = [*read, replace(read[0], id="bare", report=None, labels=None)]
    for truth, name in (("report", "report"), ("labels", "labels")):
        with pytest.raises(UserError, match=f"study bare has no {name}, which eval.truth={truth}"):
            truth_is_read(bare, settings, truth)


@pytest.mark.parametrize("against", ["report", "labels"])
def test_ranks_agree_on_the_truth(against: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank whose share has all its reports reads labels where another's has not."""
    given = [replace(s, report=None) if i == 2 else s for i, s in enumerate(studies(3))]
    asked = []
    monkeypatch.setattr(evaluation.ranks, "size", lambda: 2)
    monkeypatch.setattr(evaluation.ranks, "shard", lambda of: of[:2])
    monkeypatch.setattr(evaluation, "score", lambda *_, references: asked.append(references))
    monkeypatch.setattr(evaluation, "_whole", lambda studies, parts: None)
    monkeypatch.setattr(evaluation.ranks, "gather", lambda part: [])
    rewards = RewardService(RewardSettings(terms={"accuracy": 1.0}, against=against))
    evaluate(["", "", ""], given, rewards, EvalSettings())
    evaluate(["", ""], given[:2], rewards, EvalSettings())
    assert asked == [False, against == "report"]


def test_the_truth_is_the_labels_where_there_is_no_report() -> None:
    given = [replace(s, report=None) for s in studies(3)]
    rewards = RewardService(RewardSettings(terms={"mccs": 1.0}, against="labels"))
    found = score(["", "Edema.", ""], given, rewards)
    np.testing.assert_array_equal(found.truth, np.array([s.labels for s in given]))
    assert found.truth.dtype == np.int8 and found.truth.shape == (3, len(OBSERVATIONS))
    assert "total" in found.rewards and found.metrics()["micro_recall"] < 1


def test_a_study_with_neither_is_refused() -> None:
    given = [replace(studies(1)[0], report=None, labels=None)]
    with pytest.raises(UserError, match="has no labels"):
        score([""], given, RewardService(RewardSettings(terms={"mccs": 1.0}, against="labels")))


def test_every_metric_that_a_checkpoint_can_be_chosen_by_is_there() -> None:
    given = studies(3)
    values = score(["Edema."] * 3, given, RewardService(RewardSettings())).metrics()
    names = metric_names(RewardSettings().terms)
    assert set(values) == {*names, "words"}
    for name in names:
        assert chosen_value(values, name) == values[name]
    # the positive labels alone decide, and No Finding is none of the 13
    assert values["micro_f1_13"] != values["micro_f1"]
    with pytest.raises(
        UserError, match="eval.best_by=micro_f is no metric .* mean micro_f1"
    ) as bad:
        require_metric("micro_f", names)
    assert "\n" not in str(bad.value)


@pytest.mark.parametrize("size", [2, 3])
def test_the_parts_of_ranks_make_the_whole(size: int) -> None:
    """With what the terms kept of each report, for the page that rank 0 draws."""
    given = studies(5)
    reports = ["Edema.", "", "No edema. Effusion.", "The heart is enlarged.", "Edema. Fracture."]
    rewards = RewardService(RewardSettings(terms={"facts": 1.0, "label_f1": 0.5}))
    alone = score(reports, given, rewards)
    parts = [score(reports[r::size], given[r::size], rewards).state_dict() for r in range(size)]
    whole = _whole(given, parts)
    assert whole.reports == reports and whole.studies == given
    assert whole.notes == alone.notes and len(alone.notes["facts"]) == 5
    np.testing.assert_array_equal(whole.predicted, alone.predicted)
    np.testing.assert_array_equal(whole.truth, alone.truth)
    assert set(whole.rewards) == set(alone.rewards) == {"total", "facts", "label_f1"}
    for name, values in alone.rewards.items():
        np.testing.assert_array_equal(whole.rewards[name], values)


def test_remembered_reports_find_their_studies_by_id() -> None:
    given = studies(4)
    reports = ["Edema.", "", "No edema. Effusion.", "The heart is enlarged."]
    rewards = RewardService(RewardSettings(terms={"facts": 1.0}))
    whole = score(reports, given, rewards)
    # the data gained a study, lost one and has another order
    now = [*studies(2, "other"), given[3], given[0], given[2]]
    kept = Evaluation.from_state(now, whole.state_dict())
    assert [study.id for study in kept.studies] == [given[i].id for i in (0, 2, 3)]
    assert kept.reports == [reports[i] for i in (0, 2, 3)]
    np.testing.assert_array_equal(kept.predicted, whole.predicted[[0, 2, 3]])
    np.testing.assert_array_equal(kept.truth, whole.truth[[0, 2, 3]])
    np.testing.assert_array_equal(kept.rewards["total"], whole.rewards["total"][[0, 2, 3]])
    assert kept.notes["facts"] == [whole.notes["facts"][i] for i in (0, 2, 3)]
