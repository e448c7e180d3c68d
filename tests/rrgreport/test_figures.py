"""Curves: what is drawn, what is left out and said, and that every drawing is valid."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rrgreport.figures import Figure, training_figures
from rrgreport.series import Series, curve, smoothed, thinned, with_changes
from rrgreport.svg import ticks


def row(phase: str, step: int, **values: float) -> dict[str, Any]:
    return {"phase": phase, "step": step, "time": 0.0, **values}


def rl(steps: int, phase: str = "editgrpo", **values: float) -> list[dict[str, Any]]:
    base = {"reward/total": 1.0, "reward/match": 0.5, "zero_variance": 0.25, "kl": 0.01, **values}
    return [row(phase, i, **base) for i in range(steps)]


def test_curve_takes_the_last_value_of_a_repeated_step_and_counts_broken_ones() -> None:
    rows = [
        row("rl", 2, kl=3.0),
        row("rl", 1, kl=math.inf),
        row("rl", 2, kl=4.0),
        row("x", 3, kl=1),
    ]
    made = curve(rows, "rl", "kl", "KL")
    assert made is not None
    assert made.x == [1.0, 2.0] and math.isnan(made.y[0]) and made.y[1] == 4.0 and made.broken == 1
    assert curve(rows, "rl", "entropy", "H") is None


def test_curves_do_not_cross_a_change_of_what_they_depend_on() -> None:
    logged = [
        {"phase": "rl", "step": i, "time": 0.0, "reward/total": 1.0 + 9 * (i > 19), "kl": 0.1 + i}
        | {"zero_variance": 0.1 + i / 99}
        for i in range(90)
    ]
    change = {"step": 20, "row": 20, "resumed": "x", "old": "a", "new": "b"}

    def drawn(key: str) -> dict[str, Figure]:
        marked = with_changes(logged, [{**change, "key": key}])
        return {figure.title: figure for figure in training_figures(marked)}

    cuts = {"reward.terms": True, "reward.labeller": True, "reward.cache": False, "rl.lr": False}
    variance, kl = "Groups without variance", "KL to the reference"
    for key, cut in cuts.items():
        made = drawn(key)
        found = {title: "there is a gap" in figure.note for title, figure in made.items()}
        assert found == {"Reward": cut, variance: cut, kl: False}, key
        # nor does the moving mean: what comes behind the change is flat
        last = str(made["Reward"].chart).split('points="')[-1].split('"')[0]
        assert (len({point.split(",")[1] for point in last.split()}) == 1) is cut, key


def test_thinned_and_smoothed_keep_means_gaps_and_ends() -> None:
    long = Series("s", [float(i) for i in range(10_000)], [float(i) for i in range(10_000)])
    thin = thinned(long)
    assert len(thin.x) == 400 and thin.y[0] == 12.0 and thin.x == thin.y
    flat = smoothed(Series("s", thin.x, [2.0] * 400))
    assert flat.y == [2.0] * 400
    gap = smoothed(Series("s", [float(i) for i in range(60)], [1.0] * 30 + [math.nan] + [3.0] * 29))
    assert math.isnan(gap.y[30]) and gap.y[0] == 1.0 and gap.y[29] == 1.5
    short = Series("s", [0.0, 1.0], [5.0, 6.0])
    assert smoothed(short) is short and thinned(short) is short


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
@example(0.0, 5e-324)
@example(268435456.0, 1.192092896e-07)
def test_ticks_enclose_the_data_and_are_few(low, width) -> None:
    high = low + width
    marks = ticks(low, high)
    slack = 1e-6 * max(abs(low), abs(high), 1e-9)
    assert marks[0] <= low + slack and marks[-1] >= high - slack
    assert 2 <= len(marks) <= 8 and marks == sorted(set(marks))
    assert ticks(0.0, 0.78) == [0.0, 0.2, 0.4, 0.6, 0.8], "they are round"
    assert ticks(0.0, 0.0) == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_figures_of_a_whole_run_in_reading_order() -> None:
    rows = [row("sft", i, loss=3.0 - i) for i in range(3)] + [row("sft_val", 2, micro_f1=0.5)]
    rows += rl(3, reward_sampled=0.9, reward_edited=1.1, clip_low=0.0, clip_high=0.1)
    rows[-1]["reward_seconds/entity_f1"] = 7.69e-05
    rows[-1]["edits/b"] = 4.0
    rows += [row("editgrpo_val", 1, micro_f1=0.6), row("editgrpo_val", 2, micro_f1=0.7)]
    figures = training_figures(rows)
    assert [figure.title for figure in figures] == [
        *("Cross-entropy", "Validation micro-F1", "Reward", "Reward terms"),
        *("Groups without variance", "KL to the reference", "Clipped tokens", "Edits per step"),
    ]
    for figure in figures:
        ElementTree.fromstring(str(figure.chart))
    reward = figures[2].legend
    assert [name for _, name, _ in reward] == ["all members", "sampled", "edited"]
    assert figures[4].legend == [("c1", "EditGRPO", "25 %")]
    assert figures[7].legend == [("c1", "(b) replacement", "4")]
    assert "(b) replacement 4" in figures[7].chart
