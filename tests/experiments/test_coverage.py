"""Intervals of scorecards hold the true value as often as they say; p is not small by chance."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.coverage import (
    HOSPITAL,
    IU_XRAY,
    SYSTEMS,
    TESTED,
    Population,
    coverage,
    false_alarms,
    main,
    population,
)

REPETITIONS = 60


def error(share: float, repetitions: int = REPETITIONS) -> float:
    """Three standard errors of a share that so many repetitions measure."""
    return 3.0 * (share * (1.0 - share) / repetitions) ** 0.5


def made(number: int) -> Population:
    """Make one of each kind: with words, several studies a patient, a system that is bad."""
    return (
        population(IU_XRAY, SYSTEMS["F1 0.5"], words=1000),
        population(HOSPITAL, SYSTEMS["rare ones bad"], patient=3),
        population(IU_XRAY, SYSTEMS["F1 0.2"]),
    )[number]


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("size", [100, 200, 600])
def test_printed_intervals_cover(kind: int, size: int) -> None:
    held = coverage(made(kind), size, REPETITIONS, resamples=300)
    papers = [name for name in held if name.startswith("macro_") and "frequent" not in name]
    assert len(papers) == 9, "of few positives: a note of the scorecard says so"
    printed = {name: share for name, share in held.items() if name not in papers}
    assert {"micro_f1_13", "sample_f1", "macro_f1_frequent", "f1/*", "accuracy"} <= set(printed)
    assert ("bleu_4" in printed) == (kind == 0)
    # BLEU is a little low until 200 studies
    low = {name: 0.90 if name.startswith("bleu") and size < 200 else 0.92 for name in printed}
    least = {name: share - error(share) for name, share in low.items()}
    # of three findings at least in each set
    least["f1/*"] = 0.90 - error(0.90, 3 * REPETITIONS)
    assert {name: share for name, share in printed.items() if share < least[name]} == {}
    assert printed["micro_f1"] < 1.0 or printed["sample_f1"] < 1.0, "nor are they ever so wide"


@pytest.mark.parametrize(("size", "differ"), [(50, 0), (200, 4), (200, 8)])
def test_equal_systems_seldom_differ(size: int, differ: int) -> None:
    one = population(IU_XRAY, SYSTEMS["F1 0.5"])
    alarms = false_alarms(one, size, 100, differ=differ, resamples=300)
    assert set(alarms) == set(TESTED)
    assert max(alarms.values()) <= (0.065 + error(0.065, 100) if differ != 4 else 0.0)


def test_a_population_is_what_it_says() -> None:
    one = population(HOSPITAL, SYSTEMS["rare ones never"], patient=5, size=20_000)
    np.testing.assert_allclose(one.truth.mean(0)[:13], HOSPITAL, atol=0.02)
    both = one.first[:, :13] & one.truth[:, :13]
    assert both.sum(0)[2] / one.truth.sum(0)[2] == pytest.approx(0.6, abs=0.03)
    assert not one.first[:, 10].any(), "a rare one"
    assert (one.truth[:, 13] == ~one.truth[:, :13].any(1)).all()
    rows = one.draw(4, np.random.default_rng(0)).reshape(4, 5)
    assert (rows[:, 0] % 5 == 0).all() and (np.diff(rows) == 1).all()


def test_the_command_prints_both_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--repetitions", "1", "--sizes", "30", "--metrics", "micro_f1", "rouge_l"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| studies, or patients | `micro_f1` | `rouge_l` |"
    assert [line.split(" |")[0] for line in lines[4:] if not line.startswith("|---")] == [
        *("| studies", "| 30", "| 200, 4 differ", "| 200, 6 differ", "| 200, 12 differ")
    ]
