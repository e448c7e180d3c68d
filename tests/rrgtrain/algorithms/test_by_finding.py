"""Advantages by finding against a group worked out by hand, in fp64."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rrgclinical import build_labeller
from rrgtrain.algorithms import Algorithm, Context, Group, Objective, build_algorithm
from rrgtrain.algorithms.base import as_objective
from rrgtrain.algorithms.by_finding import finding_advantages, token_advantages
from rrgtrain.algorithms.group import members, token_offsets
from rrgtrain.errors import UserError
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import groups_of, recipe, studies, unscored
from tests.rrgtrain.train.loops import trained

POLICY = tiny_policy()
EFFUSION, DENIED = "There is a left pleural effusion.", "No pleural effusion."
OTHER, CLEAR = "There is a right pneumothorax.", "Stable appearance."


def test_advantages_of_a_group_by_hand() -> None:
    # right, missed, right; invented once; left out by all
    present = np.array([[1, 0, 0], [0, 0, 0], [1, 1, 0]], dtype=bool)
    expected = [[1 / 3, 1 / 3, 0], [-2 / 3, 1 / 3, 0], [1 / 3, -2 / 3, 0]]
    got = finding_advantages(present, np.array([True, False, False]))
    assert got.dtype == np.float64 and np.allclose(got, expected, rtol=0, atol=1e-15)


def test_tokens_have_the_advantage_of_the_findings_of_their_sentence() -> None:
    reports = [f"{EFFUSION} {CLEAR}", f"{CLEAR} {DENIED}", f"{EFFUSION} {OTHER}", CLEAR]
    firsts = [np.array([0, 6, len(r.split(".")[0]) + 2, -1]) for r in reports]
    firsts[3] = np.array([0, 7, -1])
    got = token_advantages(build_labeller("rules"), reports, EFFUSION, firsts)
    # effusion: values 1 0 1 0, mean 1/2; pneumothorax: 0 0 -1 0, mean -1/4
    expected = [[0.5, 0.5, 0, 0], [0, 0, -0.5, 0], [0.5, 0.5, -0.75, 0], [0, 0, 0]]
    np.testing.assert_allclose(np.concatenate(got), np.concatenate(expected), atol=1e-15)


def prepared(*overrides: str) -> Algorithm:
    algorithm = build_algorithm(recipe("rl.group=4", *overrides))
    algorithm.prepare(Context(POLICY.codec, studies(4)))
    return algorithm


def groups() -> list[Group]:
    return [
        replace(g, study=replace(g.study, report=EFFUSION)).with_members([unscored(g.members[0])])
        for g in groups_of(POLICY, [[EFFUSION, CLEAR, OTHER], [DENIED, CLEAR]], edited=False)
    ]


@pytest.mark.parametrize("below", ["dr_grpo", "ditpo"])
def test_it_adds_to_the_advantages_below(below: str) -> None:
    given, tfidf = groups(), "token_weights.kind=tfidf"
    rewards = torch.tensor([1.0, 0, 0.5, math.nan, 0, 1, math.nan])
    alone = as_objective(prepared(f"rl.algorithm={below}", tfidf).advantages(given, rewards))
    names = f"rl.algorithm={below}+by_finding"
    both = prepared(names, tfidf, "rl.by_finding=2").advantages(given, rewards)
    assert isinstance(both, Objective) and both.weight is None
    lengths = token_offsets(given).diff()
    base = alone.advantages.repeat_interleave(lengths)
    base = base if alone.weight is None else base * alone.weight
    # effusion is right in one of three: mean 1/3; the invented pneumothorax: mean -1/3
    values = [2 / 3, 0, -2 / 3, 0, -0.0, 0, 0]
    own = (both.advantages[0] - base).split(lengths.tolist())
    for part, value, member in zip(own, values, members(given), strict=True):
        said = len(part) - member.finished
        assert part[:said].tolist() == pytest.approx([2 * value] * said, abs=1e-6)
        assert part[said:].tolist() == [0.0] * member.finished
    assert 0 < both.metrics["by_finding/moved"] < 1
    ignored = prepared(names, tfidf, "rl.by_finding=0").advantages(given, rewards)
    torch.testing.assert_close(ignored.advantages[0], base)


def test_a_run_trains_with_it_beside_the_others_and_blocks_are_refused(tmp_path: Path) -> None:
    whole = recipe("rl.algorithm=editgrpo+by_finding+ditpo", "token_weights.kind=tfidf")
    assert build_algorithm(whole).needs_reports
    trained(tmp_path / "run", whole)
    with pytest.raises(UserError, match="by_finding reads the sentences of the whole text"):
        prepared("rl.algorithm=by_finding", "reward.blocks=think_report")
