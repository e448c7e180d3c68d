"""A batch tells advantages of members from those of tokens, and its parts say what it says."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from rrgtrain.algorithms import Group
from rrgtrain.errors import UserError
from rrgtrain.train import Batch
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
