"""Agreement with preferences, and the tally of orders."""

from __future__ import annotations

import numpy as np
import pytest

from rrgclinical.stress import ORDERS, agreement, dearer_than_error, tally


def test_tau_b_counts_each_pair_in_both_directions():
    rng = np.random.default_rng(0)
    preferred = rng.normal(size=40)
    perfect = agreement(preferred, 3 * preferred, resamples=50)
    assert (perfect.right, perfect.wrong, perfect.tied) == (40, 0, 0)
    assert perfect.tau == pytest.approx(1.0) and perfect.low == pytest.approx(1.0)
    opposed = agreement(preferred, -preferred, resamples=50)
    assert opposed.tau == pytest.approx(-1.0) and opposed.wrong == 40
    noise = agreement(preferred, rng.normal(size=40), resamples=200)
    assert noise.low < 0.2 and noise.low < noise.tau < noise.high
    # by hand: values 1, -1, 1, -1 against 1, -1, -1, 1 have as many pairs in order as against it
    assert agreement(np.array([1.0, 1.0]), np.array([1.0, -1.0])).tau == pytest.approx(0.0)
    flipped = agreement(-preferred, -np.abs(preferred) * np.sign(preferred), resamples=50)
    assert flipped.tau == pytest.approx(1.0)
    assert agreement(np.array([1.0, -1.0]), np.zeros(2)).tied == 2


def test_orders_are_tallied_by_hand():
    values = [
        {"minor dropped": 0.9, "critical dropped": 0.5},
        {"minor dropped": 0.5, "critical dropped": 0.5},
        {"minor dropped": 0.4, "critical dropped": 0.5},
        {"minor dropped": 0.9},
    ]
    order = next(order for order in ORDERS if order.text.startswith("minor dropped"))
    found = tally(order, values)
    assert (found.right, found.tied, found.wrong, found.n) == (1 / 3, 1 / 3, 1 / 3, 3)
    equal = tally(
        ORDERS[1], [{"unchanged": 1.0, "reworded": 0.99}, {"unchanged": 1, "reworded": 0.9}]
    )
    assert (equal.right, equal.wrong) == (0.5, 0.5)
    never = tally(ORDERS[2], [{"unchanged": 1.0, "a sentence said twice": 1.1}])
    assert (never.right, never.wrong, never.n) == (0.0, 1.0, 1)
    assert tally(order, [{}]).n == 0
    assert dearer_than_error([{"true denials added": 0.8, "critical invented": 0.9}]) == [
        ("true denials added", "critical invented")
    ]
