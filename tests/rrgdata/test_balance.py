"""Label-balanced draws: exact sizes, even labels, the same for a seed."""

from __future__ import annotations

import numpy as np
import pytest

from rrgdata.training_subset import balanced


def skewed(studies: int = 600) -> np.ndarray:
    """Label c of 5 is positive in a share of 1/2, 1/4, ... of the studies; some have none."""
    rng = np.random.default_rng(0)
    return rng.random((studies, 5)) < 0.5 ** np.arange(1, 6)


def test_rare_labels_are_drawn_as_often_as_common_ones() -> None:
    positive = skewed()
    chosen = balanced(positive, 60, seed=3)
    assert len(set(chosen)) == 60 and chosen == sorted(chosen)
    drawn, given = positive[chosen].sum(0), positive.sum(0)
    assert given.max() > 10 * given.min()
    assert drawn.max() < 2.6 * drawn.min()
    # the rarest label sets the pace: its studies come in until they are spent
    assert drawn[4] >= min(given[4], 12)
    assert positive[chosen].any(1).all(), "studies without a label are drawn last"


def test_all_of_them_and_none() -> None:
    positive = skewed(40)
    assert balanced(positive, 40, seed=0) == list(range(40))
    assert balanced(positive, 0, seed=0) == []
    with pytest.raises(ValueError, match="count is 41 of 40 studies"):
        balanced(positive, 41, seed=0)


def test_a_seed_draws_the_same_and_another_does_not() -> None:
    positive = skewed()
    assert balanced(positive, 60, seed=1) == balanced(positive, 60, seed=1)
    assert balanced(positive, 60, seed=1) != balanced(positive, 60, seed=2)


def test_by_hand() -> None:
    positive = np.array([[1, 0], [1, 0], [1, 0], [0, 1], [0, 0]], dtype=bool)
    for seed in range(5):
        two = balanced(positive, 2, seed)
        assert 3 in two and len({0, 1, 2} & set(two)) == 1
        assert 4 not in balanced(positive, 4, seed)
