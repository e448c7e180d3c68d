"""Differences over seeds by hand and by planted means; when one holds, fails, is undecided."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.replicate.measures import Ratios, label_measures, mean_of
from experiments.seeds import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Estimate,
    difference,
    judge_above,
    over_seeds,
)
from rrgclinical.metrics import label_report

SEEDS = (0, 1, 2)


def planted(mean: float, seed: int, units: int = 400) -> Ratios:
    """A measure whose studies scatter around `mean`, the same scatter whatever the mean."""
    return mean_of(mean + 0.1 * np.random.default_rng(seed).standard_normal(units))


def labels(seed: int, reports: int = 60) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4, (reports, 14)).astype(np.int8)


def test_measures_equal_the_metrics_they_are_named_after() -> None:
    predicted, truth = labels(0), labels(1)
    whole = label_report(predicted, truth)
    measures = label_measures(predicted, truth)
    for name in ("micro_f1", "macro_f1"):
        assert measures[name].value()[0] == pytest.approx(whole[name]), name
    weights = np.zeros((1, 60))
    weights[0, [4, 7]] = (1, 2)
    part = [4, 7, 7]
    again = label_report(predicted[part], truth[part])
    assert measures["macro_f1"].value(weights)[0] == pytest.approx(again["macro_f1"])


def test_a_difference_by_hand() -> None:
    first, second = mean_of([1.0, 3.0]), mean_of([1.0, 1.0])
    assert difference([first], [second]).value == 1.0
    assert difference([first, second], [second, second]).seeds == (1.0, 0.0)
    assert Ratios(np.zeros((2, 1)), np.zeros((2, 1))).value().tolist() == [0.0], "0/0 is 0"
    with pytest.raises(ValueError, match="2 units against 3; wanted equal"):
        difference([first], [mean_of([1.0, 2.0, 3.0])])
    with pytest.raises(ValueError, match="wanted the same"):
        Ratios(np.zeros((2, 1)), np.zeros((3, 1)))


def test_the_interval_is_that_of_the_mean_of_studies() -> None:
    values = np.random.default_rng(5).standard_normal(900)
    between = difference([mean_of(values)], [mean_of(np.zeros(900))])
    half = 1.96 * values.std() / 30
    assert between.value == pytest.approx(values.mean())
    assert between.low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert between.high == pytest.approx(values.mean() + half, abs=0.15 * half)


def test_studies_are_paired_and_seeds_are_drawn() -> None:
    # the scatter of studies is the same on both sides: nothing but the difference is left
    tight = difference([planted(0.55, s) for s in SEEDS], [planted(0.5, s) for s in SEEDS])
    assert tight.low == pytest.approx(0.05) and tight.high == pytest.approx(0.05)
    # seeds that disagree widen it, however many studies each has
    wide = difference(
        [planted(m, s, 5000) for s, m in enumerate((0.5, 0.6, 0.7))],
        [planted(0.5, s, 5000) for s in SEEDS],
    )
    assert wide.value == pytest.approx(0.1)
    assert wide.low == pytest.approx(0.0, abs=1e-9) and wide.high == pytest.approx(0.2)


def test_students_interval_goes_beyond_the_seeds() -> None:
    # by hand: mean 0.2, standard error 0.1 / sqrt(3), t 4.303
    assert over_seeds([0.1, 0.2, 0.3]) == pytest.approx((-0.0484, 0.4484), abs=1e-4)
    assert over_seeds([0.1]) == (-np.inf, np.inf)
    values = np.random.default_rng(5).standard_normal(40)
    low, high = over_seeds(list(values))
    assert high - low > 2 * 2.02 * values.std(ddof=1) / 40**0.5


@pytest.mark.parametrize(
    ("value", "low", "high", "outcome"),
    [
        (0.03, 0.01, 0.05, HOLDS),
        (0.03, -0.01, 0.07, UNDECIDED),
        (0.0, -0.02, 0.02, FAILS),
        (-0.01, -0.03, 0.02, FAILS),
    ],
)
def test_a_judgement(value: float, low: float, high: float, outcome: str) -> None:
    assert judge_above(Estimate(value, low, high, (value,))) == outcome


def test_one_seed_that_points_the_other_way_leaves_it_undecided() -> None:
    between = difference(
        [planted(m, s) for s, m in enumerate((0.56, 0.56, 0.549))],
        [planted(m, s) for s, m in enumerate((0.55, 0.5, 0.55))],
    )
    assert between.value > 0 > min(between.seeds)
    assert judge_above(between) == UNDECIDED
    assert judge_above(Estimate(0.02, 0.01, 0.03, (-0.001, 0.02, 0.041))) == UNDECIDED
