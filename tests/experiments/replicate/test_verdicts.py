"""Estimates by hand and by planted outcomes; what holds, what fails, what is undecided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.replicate.measures import (
    Ratios,
    draw_measures,
    label_measures,
    mean_of,
    rare_columns,
)
from experiments.replicate.outcome import outcome_of
from experiments.replicate.verdicts import (
    FAILS,
    HOLDS,
    NOT_JUDGED,
    NOT_REPRODUCED,
    OPEN,
    REPRODUCES,
    UNDECIDED,
    Estimate,
    estimate,
    judge,
    over_seeds,
    verdict,
)
from rrgclinical.metrics import label_report
from rrgtrain.select.statistics import reward_statistics
from tests.experiments.replicate.common import claim, planted, result, task

SEEDS = (0, 1, 2)


def labels(seed: int, reports: int = 60) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4, (reports, 14)).astype(np.int8)


def test_measures_equal_the_metrics_they_are_named_after() -> None:
    predicted, truth = labels(0), labels(1)
    known = label_report(predicted, truth)
    found = label_measures(predicted, truth, rare=[3])
    for name in ("micro_f1", "macro_f1", "sample_f1", "micro_precision", "micro_recall"):
        assert found[name].value()[0] == pytest.approx(known[name]), name
    weights = np.zeros((1, 60))
    weights[0, [4, 7]] = (1, 2)
    part = [4, 7, 7]
    again = label_report(predicted[part], truth[part])
    assert found["macro_f1"].value(weights)[0] == pytest.approx(again["macro_f1"])
    alone = label_measures(predicted[:, :], truth, rare=range(14))["rare_f1"]
    assert alone.value()[0] == pytest.approx(known["macro_f1"])


def test_rare_are_the_rarer_third_of_what_occurs() -> None:
    given = np.zeros((20, 14), dtype=np.int8)
    for column, count in ((1, 9), (2, 7), (4, 3), (6, 2), (8, 8), (9, 5)):
        given[:count, column] = 1
    given[:1, 13] = 1
    assert rare_columns(given) == [6, 4], "neither No Finding nor what never occurs"


def test_draws_equal_the_table_of_select() -> None:
    rewards = np.random.default_rng(0).integers(0, 3, (40, 4)) / 2.0
    chosen = np.arange(0, 40, 3)
    found = draw_measures(rewards, {"all": np.arange(40), "some": chosen})
    for draw, rows in (("all", rewards), ("some", rewards[chosen])):
        for name, value in reward_statistics(rows).items():
            assert found[f"{name}/{draw}"].value()[0] == pytest.approx(value), (draw, name)


def test_an_estimate_by_hand() -> None:
    first, second = mean_of([1.0, 3.0]), mean_of([1.0, 1.0])
    assert estimate([first], [second]).value == 1.0
    assert estimate([first], [second], factor=0.5).value == 1.5
    assert estimate([first, second]).seeds == (2.0, 1.0)
    assert Ratios(np.zeros((2, 1)), np.zeros((2, 1))).value().tolist() == [0.0], "0/0 is 0"
    with pytest.raises(ValueError, match="2 units against 3; wanted equal"):
        estimate([first], [mean_of([1.0, 2.0, 3.0])])
    with pytest.raises(ValueError, match="wanted the same"):
        Ratios(np.zeros((2, 1)), np.zeros((3, 1)))


def test_the_interval_is_that_of_the_mean_of_studies() -> None:
    values = np.random.default_rng(5).standard_normal(900)
    found = estimate([mean_of(values)])
    half = 1.645 * values.std() / 30
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.15 * half)


def test_studies_are_paired_and_seeds_are_drawn() -> None:
    # the scatter of studies is the same on both sides: nothing but the difference is left
    tight = estimate([planted(0.55, s) for s in SEEDS], [planted(0.5, s) for s in SEEDS])
    assert tight.low == pytest.approx(0.05) and tight.high == pytest.approx(0.05)
    # seeds that disagree widen it, however many studies each has
    wide = estimate(
        [planted(m, s, 5000) for s, m in enumerate((0.5, 0.6, 0.7))],
        [planted(0.5, s, 5000) for s in SEEDS],
    )
    assert wide.value == pytest.approx(0.1)
    assert wide.low == pytest.approx(0.1 / 3, abs=1e-9) and wide.high == pytest.approx(0.5 / 3)


def test_a_level_widens_the_interval_and_student_goes_beyond_the_seeds() -> None:
    values = np.random.default_rng(5).standard_normal(900)
    narrow, wide = (estimate([mean_of(values)], level=level) for level in (0.9, 0.95))
    ratio = (wide.high - wide.low) / (narrow.high - narrow.low)
    assert ratio == pytest.approx(1.96 / 1.645, rel=0.1)
    # by hand: mean 0.2, standard error 0.1 / sqrt(3), t 4.303
    assert over_seeds([0.1, 0.2, 0.3]) == pytest.approx((-0.0484, 0.4484), abs=1e-4)
    assert over_seeds([0.1]) == (-np.inf, np.inf)
    low, high = over_seeds(values[:40])
    assert high - low > 2 * 2.02 * values[:40].std(ddof=1) / 40**0.5


@pytest.mark.parametrize(
    ("kind", "interval", "outcome"),
    [
        ("more", (0.03, 0.01, 0.05), HOLDS),
        ("more", (0.03, -0.01, 0.07), UNDECIDED),
        ("more", (-0.01, -0.03, 0.02), FAILS),
        ("less", (-0.03, -0.05, -0.01), HOLDS),
        ("less", (-0.03, -0.05, 0.01), UNDECIDED),
        ("less", (0.03, 0.01, 0.05), FAILS),
        ("about", (0.01, -0.015, 0.019), HOLDS),
        ("about", (0.01, -0.015, 0.021), UNDECIDED),
        ("about", (0.021, 0.0, 0.04), FAILS),
        ("about", (-0.03, -0.04, -0.01), FAILS),
        ("kept", (-0.01, -0.019, 0.3), HOLDS),
        ("kept", (-0.01, -0.03, 0.0), UNDECIDED),
        ("kept", (-0.02, -0.03, 0.0), FAILS),
    ],
)
def test_a_check(kind: str, interval: tuple[float, float, float], outcome: str) -> None:
    assert judge(kind, Estimate(*interval, (interval[0],))) == outcome


def test_one_seed_that_points_the_other_way_leaves_it_undecided() -> None:
    found = estimate(
        [planted(m, s) for s, m in enumerate((0.54, 0.61, 0.62))],
        [planted(m, s) for s, m in enumerate((0.55, 0.56, 0.57))],
    )
    assert found.low > 0 > min(found.seeds)
    assert judge("more", found) == UNDECIDED
    mirrored = Estimate(-found.value, -found.high, -found.low, tuple(-s for s in found.seeds))
    assert judge("less", mirrored) == UNDECIDED
    # nearness is a matter of the interval alone
    assert judge("about", Estimate(0.0, -0.01, 0.01, (-0.03, 0.0, 0.03))) == HOLDS


def test_a_claim_takes_its_worst_check() -> None:
    assert verdict([HOLDS, HOLDS]) == REPRODUCES
    assert verdict([HOLDS, UNDECIDED]) == OPEN
    assert verdict([UNDECIDED, FAILS, HOLDS]) == NOT_REPRODUCED


@pytest.mark.parametrize(
    ("edit", "plain", "wanted"),
    [
        ((0.60, 0.61, 0.62), (0.55, 0.56, 0.57), REPRODUCES),
        ((0.54, 0.61, 0.62), (0.55, 0.56, 0.57), OPEN),
        ((0.54, 0.55, 0.57), (0.55, 0.56, 0.57), NOT_REPRODUCED),
    ],
)
def test_planted_outcomes(
    edit: tuple[float, ...], plain: tuple[float, ...], wanted: str, tmp_path: Path
) -> None:
    def of(job: str, means: tuple[float, ...]):
        return [
            result(task(job, seed, tmp_path), micro_f1=mean, macro_f1=0.3, reward=1.0)
            for seed, mean in zip(SEEDS, means, strict=True)
        ]

    results = {
        "sft": of("sft", (0.5, 0.5, 0.5)),
        "grpo": of("grpo", (0.5, 0.51, 0.52)),
        "dr_grpo": of("dr_grpo", plain),
        "editgrpo": of("editgrpo", edit),
    }
    found = outcome_of(claim("edits"), results, SEEDS, quick=False)
    assert found.verdict == wanted
    assert found.checks[1].outcome == HOLDS, "Dr. GRPO above GRPO was planted in all three"
    difference = found.checks[0].found
    assert difference.value == pytest.approx(np.mean(edit) - np.mean(plain))
    assert found.rows[0].values["micro_f1"].value == pytest.approx(0.5, abs=0.02)
    quick = outcome_of(claim("edits"), results, SEEDS, quick=True)
    assert quick.verdict == NOT_JUDGED and quick.checks[0].outcome == NOT_JUDGED
    assert quick.checks[0].found == difference
