"""Nested state without its tensors, and together again."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
import torch

from rrgtrain.state.rng import random_states, set_random_states
from rrgtrain.state.tree import SMALL, PerRank, put_back, size_of, take_out


def test_round_trip_with_awkward_keys() -> None:
    x, y = torch.arange(SMALL), torch.ones(SMALL, 2)
    state = {
        "a.b": x,
        "a": {"b": y, 3: [x, None, (1, 2.5, "t", True, b"\0")]},
        "empty": {},
        "order": OrderedDict(z=1),
        "number": np.float64(0.25),
        "small": torch.arange(12.0).reshape(3, 4).t()[1],
        "own": PerRank({"x": x}),
    }
    skeleton, tensors = take_out(state)
    assert len(tensors) == 4, "small ones stay where they are"
    back = put_back(skeleton, lambda name, sharded: tensors[name])
    assert back["small"].tolist() == [1.0, 5.0, 9.0]
    assert len(back["own"]) == 1 and torch.equal(back["own"][0]["x"], x)
    assert torch.equal(back["a.b"], x) and torch.equal(back["a"]["b"], y)
    assert back["a"][3][1:] == [None, (1, 2.5, "t", True, b"\0")]
    assert back["order"] == {"z": 1} and type(back["number"]) is float
    assert type(back["a"][3][2][3]) is bool


@pytest.mark.parametrize("leaf", [{1, 2}, object(), np.zeros(2), lambda: None])
def test_what_is_no_data_is_named(leaf: object) -> None:
    with pytest.raises(TypeError, match=r"the state's loop\.1 is a \w+; a checkpoint holds"):
        take_out({"loop": [0, leaf]})


def test_random_states_go_on_where_they_were() -> None:
    import random

    def draw() -> tuple:
        return random.random(), random.gauss(0, 1), np.random.rand(), float(torch.rand(()))

    draw()
    random.gauss(0, 1)  # leaves the second of a pair behind
    np.random.standard_normal()
    kept = put_back(take_out(random_states())[0], lambda *_: torch.empty(0))
    first = draw()
    assert draw() != first
    set_random_states(kept)
    assert draw() == first


def test_each_ranks_own_values_count_for_all_that_have_some() -> None:
    moments = torch.zeros(8, dtype=torch.uint8)
    assert size_of({"weights": torch.zeros(2), "moments": PerRank([moments, 1], 4)}) == 8 + 4 * 8
    assert size_of(PerRank(moments)) == 8
