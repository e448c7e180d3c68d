"""The alarm of a run: policies that game a reward set it off, healthy ones do not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import rrgclinical.severity
from rrgclinical.severity import Severity, Validated, alarm, alarm_lines
from rrgdata.phantom import PhantomConfig, sample_case, write_report
from rrgdata.study import Study
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings
from rrgtrain.train.evaluate import AxesWatch, score

TEMPLATE = "The heart size is normal. The lungs are clear. No pleural effusion or pneumothorax."
PACKAGED = Path(rrgclinical.severity.__file__).with_name("significance.yaml")
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


def swapped(text: str) -> str:
    return text.replace("left", "L").replace("right", "left").replace("L", "right")


def validations(policy, terms, watch=None):
    """Rows of six validations; `policy` maps the training done, 0 to 1, to reports."""
    rewards = RewardService(RewardSettings(terms=terms))
    watch = watch or AxesWatch(rewards.scored_text, READER)
    return [watch(score(policy(done), STUDIES, rewards)) for done in np.linspace(0, 1, 6)]


def term(function) -> dict[str, float]:
    return {f"{__name__}:{function.__name__}": 1.0}


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
    "sides become right": lambda t: mixture(TEXTS, [swapped(x) for x in TEXTS], t, 6),
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


def test_a_reward_of_nan_has_not_risen():
    policy, function, _ = GAMES["template"]
    rewards = RewardService(RewardSettings(terms=term(function)))
    watch = AxesWatch(rewards.scored_text, READER)
    for done in (0.0, 0.4, 0.8):
        watch(score(policy(done), STUDIES, rewards))
    past = watch._past
    assert alarm(past)
    assert not alarm([*past[:2], dataclasses.replace(past[2], reward=past[2].reward * np.nan)])


def rows_of(row):
    return [key.removeprefix("axis/") for key in row if key.startswith("axis/")]


def test_the_past_survives_a_checkpoint_and_labels_alone_have_no_axes():
    policy, function, _ = GAMES["template"]
    rewards = RewardService(RewardSettings(terms=term(function)))
    before, after = AxesWatch(rewards.scored_text, READER), AxesWatch(rewards.scored_text, READER)
    for done in (0.0, 0.4):
        before(score(policy(done), STUDIES, rewards))
    after.load_state_dict(before.state_dict())
    last = score(policy(0.8), STUDIES, rewards)
    assert "alarm/reward" in after(last) and after.state_dict().keys() == {"past"}
    assert "alarm/reward" not in AxesWatch(rewards.scored_text, READER)(last)
    bare = [Study(s.id, "val", None, (0,) * 14, ()) for s in STUDIES[:6]]
    labels = RewardService(RewardSettings(terms={"label_f1": 1.0}, against="labels"))
    assert not rows_of(AxesWatch(labels.scored_text, READER)(score(TEXTS[:6], bare, labels)))
