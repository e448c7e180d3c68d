"""A batch tells advantages of members from those of tokens, and its parts say what it says."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rrgdata.study import Study
from rrgtrain.algorithms import Group, Member
from rrgtrain.errors import UserError
from rrgtrain.train import Batch, batch_row, reward_rows, zero_variance
from rrgtrain.train.loader import batch_indices
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import groups_of, recipe

SETTINGS = recipe("rl.algorithm=dr_grpo").rl


def lengths_of(*lengths: tuple[int, ...]) -> list[Group]:
    """Groups of members with so many tokens."""
    groups = groups_of(tiny_policy(), [["x"] * len(own) for own in lengths], edited=False)
    return [
        replace(
            group,
            members=tuple(
                replace(m, ids=torch.arange(5, 5 + n))
                for m, n in zip(group.members, own, strict=True)
            ),
        )
        for group, own in zip(groups, lengths, strict=True)
    ]


def test_advantages_are_what_their_shape_says_in_the_whole_and_in_every_part() -> None:
    """Also where a batch, or a part of it, has as many tokens as members."""
    wrong = []
    for lengths in itertools.product(((2, 0), (1, 1), (3, 2), (0, 4)), repeat=2):
        groups = lengths_of(*lengths)
        each = torch.tensor([n for own in lengths for n in own])
        members = torch.arange(1.0, 1 + len(each))
        tokens = torch.arange(1.0, 1 + int(each.sum()))
        spread = members.repeat_interleave(each)
        given = [(members, spread), (members[:, None], spread), (tokens[None], tokens)]
        given += [(tokens, tokens)] if len(tokens) != len(members) else []
        for advantages, wanted in given:
            whole = Batch.of(groups, advantages, SETTINGS)
            first = int(each[:2].sum())
            expected = {(0,): wanted[:first], (1,): wanted[first:], (0, 1): wanted}
            found = {chosen: whole.part(list(chosen), SETTINGS).advantages for chosen in expected}
            same = all(torch.equal(found[chosen], own) for chosen, own in expected.items())
            if not (same and torch.equal(whole.advantages, wanted)):
                wrong.append((lengths, tuple(advantages.shape)))
    assert not wrong


@pytest.mark.parametrize("shape", [(3,), (2, 2), (1, 2), (5, 1), ()])
def test_advantages_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="wanted 2, one per member, or 5, one per token"):
        Batch.of(lengths_of((3, 2)), torch.zeros(shape), SETTINGS)


# The order of the studies: seeded permutations, one an epoch.
sizes = st.tuples(st.integers(1, 40), st.integers(1, 60), st.integers(0, 2**31))


@given(sizes)
def test_every_epoch_is_a_permutation(drawn: tuple[int, int, int]) -> None:
    count, batch, seed = drawn
    steps = -(-3 * count // batch)
    stream = [i for step in range(steps) for i in batch_indices(count, batch, step, seed)]
    for epoch in range(3):
        assert sorted(stream[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(sizes, st.integers(0, 50))
def test_a_step_is_a_slice_of_one_stream(drawn: tuple[int, int, int], step: int) -> None:
    count, batch, seed = drawn
    stream = batch_indices(count, (step + 1) * batch, 0, seed)
    assert batch_indices(count, batch, step, seed) == stream[step * batch :]


def test_seeds_and_epochs_differ() -> None:
    first = batch_indices(30, 30, 0, 0)
    assert first != sorted(first)
    assert first != batch_indices(30, 30, 0, 1)
    assert first != batch_indices(30, 30, 1, 0)


# Test the reward rows of a step's log: which reports each number is over.
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
