"""Choosing among candidates: gains pair by pair, and both rules by hand."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.choose import GAINS, RULES, choose
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings

LEFT, RIGHT = "There is a small left effusion.", "There is a large right pneumothorax."
STUDIES = [
    [RIGHT, LEFT, LEFT, "Small left effusion. The heart is enlarged."],
    ["", "No effusion.", "No pneumothorax or effusion.", "Normal chest."],
]


@pytest.mark.parametrize("term", GAINS)
def test_gains_are_the_term_of_every_pair(term) -> None:
    rewards = RewardService(RewardSettings(terms={term: 1.0}))
    pairs = [[(a, b) for a in texts for b in texts] for texts in STUDIES]
    expected = [rewards(*map(list, zip(*row, strict=True)))["total"] for row in pairs]
    assert GAINS[term](STUDIES) == pytest.approx(np.reshape(expected, (2, 4, 4)), abs=1e-12)


def test_the_rules_by_hand() -> None:
    gains = np.array([[[1.0, 0.2, 0.2], [0.3, 1.0, 0.5], [0.1, 0.5, 1.0]]])
    chosen = {name: rule(gains, np.array([[9, 3, 4]])).tolist() for name, rule in RULES.items()}
    # means 0.47, 0.6, 0.53: the first is longest, and not of the half that agrees
    assert chosen == {"mbr": [1], "longest_agreeing": [2]}


def test_the_odd_one_out_is_not_chosen_and_bad_input_is_named() -> None:
    for term in GAINS:
        assert choose(STUDIES[:1], term)[0] != 0
    for call, line in (
        ((STUDIES, "bleu"), "bleu is unknown; there are severity, match"),
        ((STUDIES, "match", "best"), "best is unknown; there are mbr"),
        (([["a"], ["a", "b"]],), r"studies of \[1, 2\] candidates"),
        (([],), r"studies of \[\] candidates"),
    ):
        with pytest.raises(UserError, match=line):
            choose(*call)
