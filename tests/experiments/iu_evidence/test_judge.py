"""The announced rule on synthetic numbers, and measures against the library's own."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.iu_evidence.arms import ARMS, CLAIMS, Comparison, Hypothesis, claims_of, with_needs
from experiments.iu_evidence.judge import (
    ABNORMAL,
    ALL,
    FAILS,
    HOLDS,
    UNDECIDED,
    Difference,
    checked,
    decide,
    difference,
    measured,
    verdict,
)
from experiments.iu_evidence.report import told
from experiments.replicate.measures import mean_of
from rrgclinical.metrics import label_report
from rrgtrain.errors import UserError
from tests.experiments.iu_evidence.common import planted

FOUR = (0.03, 0.03, 0.03, 0.03)


def test_the_rule_on_made_up_differences() -> None:
    cases = {
        ("more", 0.03, 0.01, 0.05, FOUR): HOLDS,
        ("more", 0.03, 0.01, 0.05, (0.06, 0.06, 0.02, -0.02)): HOLDS,
        ("more", 0.03, 0.01, 0.05, (0.08, 0.08, -0.02, -0.02)): UNDECIDED,
        ("more", 0.03, 0.01, 0.05, (0.07, 0.0)): UNDECIDED,
        ("more", 0.03, -0.01, 0.07, FOUR): UNDECIDED,
        ("more", 0.015, 0.005, 0.025, FOUR): UNDECIDED,
        ("more", 0.01, 0.005, 0.015, FOUR): FAILS,
        ("more", -0.03, -0.05, -0.01, FOUR): FAILS,
        ("less", -0.03, -0.05, -0.01, (-0.03, -0.03)): HOLDS,
        ("less", 0.03, 0.01, 0.05, (0.03, 0.03)): FAILS,
        ("less", -0.03, -0.07, 0.01, (-0.03, -0.03)): UNDECIDED,
        ("kept", -0.01, -0.019, 0.01, FOUR): HOLDS,
        ("kept", -0.01, -0.03, 0.01, FOUR): UNDECIDED,
        ("kept", -0.04, -0.05, -0.03, FOUR): FAILS,
    }
    wrong = [
        (case, outcome)
        for case, outcome in cases.items()
        if decide(case[0], 0.02, Difference(*case[1:])) != outcome
    ]
    assert not wrong
    assert [verdict(v) for v in ([HOLDS, HOLDS], [HOLDS, UNDECIDED], [UNDECIDED, FAILS], [])] == [
        *(HOLDS, UNDECIDED, FAILS, "measured"),
    ]


def test_a_difference_is_paired_over_studies() -> None:
    scatter = np.random.default_rng(0).standard_normal((2, 300))
    first = [mean_of(row + 0.05) for row in scatter]
    between = difference(first, [mean_of(row) for row in scatter])
    assert between.value == pytest.approx(0.05) and between.folds == pytest.approx((0.05, 0.05))
    # what both arms share cancels: unpaired the interval would be a third wide
    assert between.high - between.low < 1e-9
    with pytest.raises(ValueError, match="part 1: 300 units against 299"):
        difference(first, [mean_of(scatter[0]), mean_of(scatter[1][:299])])


def test_measures_are_those_of_the_library() -> None:
    rng = np.random.default_rng(2)
    predicted, truth = rng.integers(0, 4, (2, 200, 14)).astype(np.int8)
    result, own = planted(predicted, truth), label_report(predicted, truth)
    names = {
        "f1_13": "micro_f1_13",
        "macro_14": "macro_f1",
        "micro_5": "micro_f1_5",
        "recall_13": "micro_recall_13",
        "precision_13": "micro_precision_13",
        "sample_f1": "sample_f1",
    }
    ours = {name: float(measured(result, name, ALL).value()[0]) for name in names}
    assert ours == pytest.approx({name: own[theirs] for name, theirs in names.items()})
    assert measured(planted(truth, truth), "mesh", ALL).value()[0] > 0.5
    assert measured(result, "unheard", ALL).value()[0] == 0.25
    truth[:50, :13] = 0
    abnormal = measured(planted(predicted, truth), "f1_13", ABNORMAL)
    assert abnormal.units == int(np.isin(truth[:, :13], (1, 3)).any(1).sum()) <= 150
    flat = planted(truth, truth, flat="1100", draws={"random": "1010", "top": "0011"})
    assert measured(flat, "zero_variance", ALL, "random").value()[0] == 0.5
    assert measured(flat, "zero_variance", ALL, "top").value()[0] == 0.0


def test_a_check_takes_its_arms_in_their_order() -> None:
    truth = np.tile(np.eye(14, dtype=np.int8)[:13], (20, 1))
    results = {"a": [planted(truth, truth)] * 2, "b": [planted(truth * 0, truth)] * 2}
    more = Comparison("a", "more", "b", "f1_13", ALL, 0.02)
    between, outcome = checked(more, results)
    assert between.value == 1.0 and outcome == HOLDS
    assert checked(Comparison("b", "more", "a", "f1_13", ALL, 0.02), results)[1] == FAILS


def test_the_report_has_both_judges_of_a_check() -> None:
    truth = np.tile(np.eye(14, dtype=np.int8)[:13], (20, 1))
    results = {"grpo": [planted(truth, truth)] * 4, "dr_grpo": [planted(truth * 0, truth)] * 4}
    check = Comparison("grpo", "more", "dr_grpo", "f1_13", ALL, 0.02)
    lines = told(Hypothesis("edits", "a table", "A sentence.", (check,)), results)
    assert "Verdict: holds." in lines
    (judged,) = [n for n, line in enumerate(lines) if line.startswith("- grpo is above dr_grpo")]
    assert lines[judged].endswith("+100.0 +100.0 +100.0 +100.0: holds")
    assert lines[judged + 1].startswith("  - by the human codes: +100.0 [+100.0, +100.0]")
    rows = [line.split() for line in lines if line.startswith("grpo ")]
    assert [row[1:8] for row in rows] == [["1.000", "0.929", "1.000", "1.000", "0.100", "0.250",
                                           "30.0"]] * 2  # fmt: skip


def test_claims_name_what_there_is() -> None:
    names = [claim.name for claim in CLAIMS]
    assert names[:5] == ["rl", "edits", "rl_by_reward", "edits_by_reward", "oracle"]
    assert all(0 not in claim.folds for claim in CLAIMS), "fold 0 is of development"
    by_name = {claim.name: claim for claim in CLAIMS}
    follow_up = by_name["edits_by_reward"]
    assert [c.least for c in follow_up.checks] == [c.least for c in by_name["edits"].checks]
    assert set(follow_up.arms) == {f"{arm}_by_reward" for arm in by_name["edits"].arms}
    assert {"start", "sft_continued"} < set(by_name["rl_by_reward"].arms), (
        "they are not trained by it"
    )
    lacking = [arm for claim in CLAIMS for arm in claim.arms if arm not in ARMS]
    assert not lacking
    assert with_needs(["editgrpo"]) == ["data", "data_100", "reader", "start", "editgrpo"]
    assert with_needs(["oracle_1"]) == [
        "data",
        "data_shuffled",
        "data_once",
        "blind",
        "oracle_1",
    ]
    with pytest.raises(UserError, match="claim edit is unknown"):
        claims_of(["edit"])
