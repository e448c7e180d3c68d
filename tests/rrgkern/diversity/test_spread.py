"""Table 7's three numbers against plain loops."""

from __future__ import annotations

import math

import pytest
import torch

from rrgkern import reward_spread
from tests.rrgkern.diversity.test_diversity import deviation
from tests.rrgkern.many_cases import Cases, Choices, for_all

REWARDS = [0.0, 0.25, 0.5, 0.1, 1.0]


def some_groups(choices: Choices) -> tuple[tuple[tuple[float, bool], ...], ...]:
    """Groups of rewards, each valid or not."""
    return tuple(
        tuple((choices.of(REWARDS), choices.below(5) > 0) for _ in range(choices.below(7)))
        for _ in range(1 + choices.below(8))
    )


@for_all(Cases(some_groups, 100))
def test_the_three_numbers(cases: list) -> None:
    for groups in cases:
        flat = [member for group in groups for member in group]
        rewards = torch.tensor([reward if valid else math.nan for reward, valid in flat])
        valid = torch.tensor([valid for _, valid in flat], dtype=torch.bool)
        offsets = torch.tensor([0, *map(len, groups)]).cumsum(0)
        found = [float(number) for number in reward_spread(rewards, offsets, valid=valid)]
        lists = [[reward for reward, ok in group if ok] for group in groups]
        lists = [rewards for rewards in lists if rewards]
        if not lists:
            assert all(map(math.isnan, found))
            continue
        wanted = [
            sum(len(set(rewards)) == 1 for rewards in lists) / len(lists),
            sum(len(set(rewards)) for rewards in lists) / len(lists),
            sum(map(deviation, lists)) / len(lists),
        ]
        assert found == pytest.approx(wanted, abs=1e-7)


def test_without_a_mask_and_in_fp64() -> None:
    spread = reward_spread(torch.tensor([0.0, 0.0, 1.0, 0.5]), torch.tensor([0, 2, 4]))
    assert spread.zero_variance.dtype == spread.mean_std.dtype == torch.float64
    assert [float(number) for number in spread] == [0.5, 1.5, 0.125]


def test_a_reward_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="the reward of sequence 1 is nan"):
        reward_spread(torch.tensor([0.0, math.nan]), torch.tensor([0, 2]))
