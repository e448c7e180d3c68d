"""Evaluation: greedy reports in the order of studies, and the alarm of gamed rewards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rrgclinical import severity
from rrgclinical.labels import OBSERVATIONS, to_binary
from rrgclinical.severity import Severity, Validated, alarm, alarm_lines
from rrgdata.phantom import PhantomConfig, sample_case, write_report
from rrgdata.study import Study
from rrgpolicy.rollout import SamplingRequest, generate
from rrgtrain.errors import NotFinite, UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import EvalSettings, RewardSettings
from rrgtrain.train import evaluate as evaluation
from rrgtrain.train.evaluate import (
    AxesWatch,
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

PACKAGED = Path(severity.__file__).with_name("significance.yaml")


def test_reports_are_the_greedy_ones_whatever_the_batch() -> None:
    policy, prompts = policy_and_prompts()
    given = studies(5)
    request = SamplingRequest(
        [prompts(s) for s in given], group=1, max_new_tokens=15, seeds=[[0]] * 5, greedy=True
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


TEMPLATE = "The heart size is normal. The lungs are clear. No pleural effusion or pneumothorax."
CONFIG = PhantomConfig()
READER = Severity()
CASES = [sample_case(CONFIG, (0, 0, number)) for number in range(120)]
TEXTS = [write_report(case, case.findings, case.negated, CONFIG) for case in CASES]
STUDIES = [Study(str(i), "val", text, None, ()) for i, text in enumerate(TEXTS)]
OTHERS = [*TEXTS[7:], *TEXTS[:7]]
"""What a policy writes before it is trained: the reports of other patients."""


def share_of_template(report: str, reference: str) -> float:
    return float(report == TEMPLATE)


def repetition(report: str, reference: str) -> float:
    sentences = report.split(". ")
    return 1.0 - len(set(sentences)) / len(sentences)


def hedges(report: str, reference: str) -> float:
    return report.count("Possible ") / (1 + report.count("."))


def hedged(text: str) -> str:
    return " ".join(f"Possible {s[0].lower()}{s[1:]}." for s in text.rstrip(".").split(". "))


def mixture(bad: list[str], good: list[str], share: float, seed: int) -> list[str]:
    """Policies change report by report: a study goes over to `bad` at its own moment."""
    moments = np.random.default_rng(seed).random(len(bad))
    return [b if m < share else g for b, g, m in zip(bad, good, moments, strict=True)]


def dropped(text: str, seed: int) -> str:
    """Without a third of its sentences."""
    rng = np.random.default_rng(seed)
    kept = [s for s in text.rstrip(".").split(". ") if rng.random() > 0.35]
    return f"{'. '.join(kept or ['The lungs are clear'])}."


def validations(policy, terms, watch=None):
    """Rows of six validations; `policy` maps the training done, 0 to 1, to reports."""
    rewards = RewardService(RewardSettings(terms=terms))
    watch = watch or AxesWatch(rewards.scored_text, READER)
    return [watch(score(policy(done), STUDIES, rewards)) for done in np.linspace(0, 1, 6)]


def term(function) -> dict[str, float]:
    return {f"{__name__}:{function.__name__}": 1.0}


SWAPPED = [x.replace("left", "L").replace("right", "left").replace("L", "right") for x in TEXTS]
GAMES = {
    "template": (lambda t: mixture([TEMPLATE] * len(TEXTS), OTHERS, t, 1), share_of_template,
                 {"critical_found"}),
    "repetition": (lambda t: mixture([f"{x} {x} {x}" for x in OTHERS], OTHERS, t, 2), repetition,
                   {"repeated", "length_ratio"}),
    "hedging": (lambda t: mixture([hedged(x) for x in TEXTS], TEXTS, t, 3), hedges, {"hedged"}),
}  # fmt: skip
HEALTHY = {
    "other patients' reports become right": lambda t: mixture(TEXTS, OTHERS, t, 4),
    "what was dropped comes back": lambda t: mixture(
        TEXTS, [dropped(x, i) for i, x in enumerate(TEXTS)], t, 5),
    "sides become right": lambda t: mixture(TEXTS, SWAPPED, t, 6),
}  # fmt: skip


def test_policies_that_game_their_reward_set_it_off():
    for name, (policy, function, wanted) in GAMES.items():
        rows = validations(policy, term(function))
        told = {key.removeprefix("alarm/") for row in rows for key in row if "alarm/" in key}
        assert wanted | {"reward"} <= told, (name, told)
        assert not any("alarm/reward" in row for row in rows[:2]), name
        first = next(row for row in rows if "alarm/reward" in row)
        (line,) = alarm_lines([{**first, "step": 9}])
        assert "After step 10 the reward had risen by" in line and "\n" not in line


def test_healthy_policies_do_not():
    for name, policy in HEALTHY.items():
        rows = validations(policy, {"severity": 1.0, "match": 1.0})
        assert rows[-1]["reward"] > rows[0]["reward"] + 0.05, name
        assert not [key for row in rows for key in row if "alarm/" in key], name
        assert {f"axis/{axis}" for axis in ("critical_found", "side_right", "hedged")} <= set(
            rows[-1]
        )


def test_no_alarm_without_a_rise_or_over_other_studies():
    rows = validations(lambda t: mixture(OTHERS, TEXTS, t, 1), {"severity": 1.0})
    assert rows[-1]["reward"] < rows[0]["reward"]
    assert not [key for row in rows for key in row if "alarm/" in key]

    def one(reward, found, n=20, first=0):
        counts = {name: (np.full(n, 0.5), np.ones(n)) for name in rows_of(rows[0])}
        counts["critical_found"] = (np.full(n, found), np.ones(n))
        studies = tuple(map(str, range(first, first + n)))
        return Validated(studies, np.full(n, reward), counts)

    assert alarm([one(0.1, 0.9), one(0.2, 0.5)]) == {}
    gamed = [one(0.1, 0.9), one(0.2, 0.5), one(0.3, 0.4)]
    assert alarm(gamed) == pytest.approx({"alarm/reward": 0.2, "alarm/critical_found": -0.5})
    # what nobody could score leaves the rest; nothing has risen where that is all
    first = np.where(np.arange(20) == 0, np.nan, 0.0)
    unscored = [replace(gamed[2], reward=gamed[2].reward + nan) for nan in (first, np.nan)]
    assert [bool(alarm([*gamed[:2], last])) for last in unscored] == [True, False]
    assert alarm([*gamed[:2], one(0.3, 0.4, n=19)]) == {}
    assert alarm([*gamed[:2], one(0.3, 0.4, first=1)]) == {}
    assert alarm([one(0.1, 0.9), one(0.2, 0.1), one(0.3, 0.9)]) == {}
    # a change within two standard errors is none
    noisy = one(0.3, 0.4)
    noisy.reward[:] = np.linspace(-1.0, 1.6, 20)
    assert alarm([*gamed[:2], noisy]) == {}


def test_what_is_critical_is_by_the_table_of_the_reward(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text(PACKAGED.read_text().replace("actionable: 0.45", "actionable: 0.4"))
    ours, theirs = (
        RewardService(RewardSettings(terms={"severity": 1.0}, options=options))
        for options in ({}, {"severity": {"table": str(own)}})
    )
    rows = [
        AxesWatch(one.scored_text, one.model("severity"))(score(OTHERS, STUDIES, one))
        for one in (ours, theirs)
    ]
    assert rows[0]["axis/critical_invented"] > rows[1]["axis/critical_invented"] > 0
    names = ("axis/hedged", "axis/repeated", "axis/length_ratio")
    assert all(rows[0][name] == rows[1][name] for name in names)


def rows_of(row):
    return [key.removeprefix("axis/") for key in row if key.startswith("axis/")]


def test_the_past_survives_a_checkpoint_and_labels_alone_have_no_axes():
    policy, function, _ = GAMES["template"]
    rewards = RewardService(RewardSettings(terms=term(function)))
    before, after = AxesWatch(rewards.scored_text, READER), AxesWatch(rewards.scored_text, READER)
    for done in (0.0, 0.4):
        before(score(policy(done), STUDIES, rewards))
    saved = before.state_dict()
    for one in saved["past"]:  # as a checkpoint holds them in another order of studies
        counts = {name: of.flip(1) for name, of in one["counts"].items()}
        one |= {"studies": one["studies"][::-1], "reward": one["reward"].flip(0), "counts": counts}
    after.load_state_dict(saved)
    last = score(policy(0.8), STUDIES, rewards)
    assert "alarm/reward" in after(last) and after.state_dict().keys() == {"past"}
    assert "alarm/reward" not in AxesWatch(rewards.scored_text, READER)(last)
    bare = [Study(s.id, "val", None, (0,) * 14, ()) for s in STUDIES[:6]]
    labels = RewardService(RewardSettings(terms={"label_f1": 1.0}, against="labels"))
    assert not rows_of(AxesWatch(labels.scored_text, READER)(score(TEXTS[:6], bare, labels)))
