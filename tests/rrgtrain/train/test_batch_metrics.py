"""Test the reward rows of a step's log: which reports each number is over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from rrgdata.study import Study
from rrgtrain.algorithms import Group, Member
from rrgtrain.train import Batch, batch_row, reward_rows, zero_variance


def group(index: int, *origins: str) -> Group:
    """Members of two tokens, that of an oracle without a reward."""
    members = tuple(
        Member(torch.tensor([5, 6]), "x", origin, scored=origin != "oracle") for origin in origins
    )
    study = Study(f"s{index}", "train", "reference", None, ())
    return Group(index, study, None, members)  # type: ignore[arg-type]


def test_the_zero_reward_rate_is_the_share_of_sampled_reports() -> None:
    """OraPO's figure 2. Three of five here: neither the two groups of three in which nothing was
    earned, nor the five of seven reports that an edit's reward would make it."""
    groups = [
        group(0, "sampled", "sampled", "edited", "oracle"),
        group(1, "sampled"),
        group(2, "sampled", "sampled", "edited"),
    ]
    total = np.array([0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 0.0])
    rows = reward_rows(Batch(groups, scores={"total": total, "facts": total / 2}))
    assert rows["zero_reward"] == pytest.approx(3 / 5)
    assert rows["zero_groups"] == pytest.approx(2 / 3)
    assert rows["reward/total"] == pytest.approx(1.5 / 7)
    assert rows["reward/facts"] == pytest.approx(0.75 / 7)
    assert rows["reward_sampled"] == pytest.approx(1.5 / 5) and rows["reward_edited"] == 0.0
    assert "reward_oracle" not in rows


@pytest.mark.parametrize("value", [1e-9, -1e-9])
def test_only_exactly_nothing_is_nothing(value: float) -> None:
    rows = reward_rows(
        Batch([group(0, "sampled", "sampled")], scores={"total": np.array([0.0, value])})
    )
    assert rows["zero_reward"] == 0.5 and rows["zero_groups"] == 0.0


def test_nothing_sampled_has_no_rate() -> None:
    rows = reward_rows(Batch([group(0, "edited")], scores={"total": np.zeros(1)}))
    assert not {"zero_reward", "zero_groups"} & set(rows)
    both = reward_rows(
        Batch([group(0, "edited"), group(1, "sampled")], scores={"total": np.zeros(2)})
    )
    assert both["zero_groups"] == 1.0


def test_a_group_without_variance_is_one_whose_competing_members_earn_the_same() -> None:
    groups = [
        group(0, "sampled", "sampled", "oracle"),
        group(1, "sampled", "edited"),
        group(2, "sampled"),
    ]
    total = np.array([0.5, 0.5, 0.5, 0.25, 0.0])
    assert zero_variance(Batch(groups, scores={"total": total})) == 2
    alone = [replace(groups[1], members=groups[1].members[:1])]
    assert zero_variance(Batch(alone, scores={"total": np.zeros(1)})) == 1


def test_what_is_cut_is_counted_among_the_sampled_reports() -> None:
    """Edits and oracles always end; masked reports are drawn and cut all the same."""
    ids = torch.tensor([5, 6, 7, 8])
    cut = Member(ids, "x", finished=False)
    for scored in (True, False):
        whole = group(0, "sampled", "edited", "edited", "oracle")
        mixed = replace(whole, members=(replace(cut, scored=scored), *whole.members))
        batch = Batch([mixed], [mixed], scores={"total": np.zeros(3 + scored)})
        row = batch_row(batch)
        assert (row["unfinished"], row["report_tokens"]) == (0.5, 3.0), scored
    alone = replace(whole, members=(replace(cut, scored=False),) * 2)
    row = batch_row(Batch([alone], [alone], scores={"total": np.zeros(0)}))
    assert row == {"zero_variance": 1.0, "unfinished": 1.0, "report_tokens": 4.0}
