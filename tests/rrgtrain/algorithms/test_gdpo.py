"""GDPO: terms compared each within its group, by the paper's formulas written out."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rrgtrain.algorithms import Group, build_algorithm
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import Recipe, RewardSettings
from rrgtrain.train import zero_variance
from rrgtrain.train.rl import train_rl
from tests.rrgpolicy.model.common import REPORTS, prompt, tiny_policy
from tests.rrgtrain.common import Batch, member, policy_and_prompts, recipe, run_of, studies

POLICY = tiny_policy()
ENCODED = prompt(POLICY, "s", 0)
TERMS = {"label_f1": 1.0, "match": 0.25}
# two terms that trade off within a group: equal sums, and one that is flat in both
ROWS = (
    [(1.0, 0.0), (0.0, 4.0), (1.0, 0.0)],
    [(0.2, 2.0), (0.9, 2.0), (0.4, 2.0)],
    [(1.0, 1.0)] * 3,
)


def gdpo(*overrides: str, **starts: float) -> Recipe:
    made = recipe("rl.algorithm=grpo", "rl.combine=gdpo", "rl.std=sample", *overrides)
    return replace(made, reward=RewardSettings(terms=TERMS, starts=starts))


def scored_batch(unscored: bool = False) -> Batch:
    groups, scores = [], {name: [] for name in TERMS}
    for g, rows in enumerate(ROWS):
        own = [member(POLICY, REPORTS[k % 3]) for k in range(len(rows))]
        if unscored:
            own.insert(1, member(POLICY, REPORTS[0], "oracle", scored=False))
        groups.append(Group(g, studies(1)[0], ENCODED, tuple(own)))
        for name, values in zip(TERMS, zip(*rows, strict=True), strict=True):
            scores[name] += values
    by_term = {name: np.array(values) for name, values in scores.items()}
    total = sum(weight * by_term[name] for name, weight in TERMS.items())
    return Batch(groups, groups, {}, {"total": total, **by_term}, {}, tuple(TERMS))


def normalised(values: list[float]) -> list[float]:
    """A term in a group: by the standard deviation with count - 1, and TRL's eps."""
    spread = statistics.stdev(values) + 1e-4
    return [(v - statistics.mean(values)) / spread for v in values]


def written_out() -> list[float]:
    """GDPO's equations: group by group, term by term, then all by the spread of all."""
    sums = []
    for rows in ROWS:
        parts = [normalised(list(values)) for values in zip(*rows, strict=True)]
        sums += [
            sum(w * p for w, p in zip(TERMS.values(), row, strict=True))
            for row in zip(*parts, strict=True)
        ]
    spread = statistics.stdev(sums) + 1e-4
    return [s / spread for s in sums]


def test_each_term_is_normalised_in_its_group_and_then_summed() -> None:
    for unscored in (False, True):
        batch = scored_batch(unscored)
        algorithm = build_algorithm(gdpo())
        values = algorithm.advantages(batch.groups_with_terms(), batch.rewards)
        assert values[batch.scored].tolist() == pytest.approx(written_out(), rel=1e-5, abs=1e-7)
        assert values[~batch.scored].tolist() == [0.0] * int((~batch.scored).sum())
        # a group without any spread keeps exact zeros, and is left out of the forward
        own = values[batch.scored]
        assert own[-3:].tolist() == [0.0] * 3
        # the sums of the first group are equal: summed first, its reports teach nothing
        summed = build_algorithm(gdpo("rl.combine=sum")).advantages(batch.groups, batch.rewards)
        assert summed[batch.scored][:3].abs().max() == 0 < own[:3].abs().min()


def test_by_tokens_the_mean_over_tokens_is_taken_off() -> None:
    batch = scored_batch()
    values = build_algorithm(gdpo("rl.whiten=token")).advantages(
        batch.groups_with_terms(), batch.rewards
    )
    lengths = torch.tensor([float(len(m.ids)) for g in batch.groups for m in g.members])
    count = lengths.sum()
    assert abs(float((lengths * values).sum() / count)) < 1e-6
    assert float((lengths * values.square()).sum() / (count - 1)) == pytest.approx(1.0, rel=1e-5)
    assert len(set(lengths.tolist())) > 1


def test_groups_differ_by_what_is_compared() -> None:
    """A group of equal sums whose terms differ teaches under GDPO, and is not drawn anew."""
    batch = scored_batch()
    assert zero_variance(batch) == 1
    assert zero_variance(replace(batch, compared=("total",))) == 2


def test_recipes_that_normalise_nothing_are_refused() -> None:
    late = gdpo(label_f1=0.5, match=0.5)
    cases = ((gdpo("rl.std=none"), "use rl.std=sample"), (late, "no term count from the first"))
    for bad, line in cases:
        with pytest.raises(UserError, match=re.escape(line)):
            build_algorithm(bad)
    batch = scored_batch()
    with pytest.raises(UserError, match="no member carries any"):
        build_algorithm(gdpo()).advantages(batch.groups, batch.rewards)


def test_a_run_hands_over_the_terms_that_count_at_the_step(tmp_path: Path) -> None:
    chosen, handed = gdpo(match=0.5), []
    algorithm = build_algorithm(chosen)

    def spied(groups: list[Group], rewards: torch.Tensor) -> torch.Tensor:
        handed.append({tuple(m.terms) for group in groups for m in group.members})
        return algorithm.advantages(groups, rewards)

    parts = {"algorithm": replace(algorithm, advantages=spied), "out": tmp_path / "best"}
    parts["validate"] = lambda: {chosen.eval.best_by: 0.0}
    run = run_of(*policy_and_prompts(), studies(4), chosen, **parts)
    run.rewards = RewardService(chosen.reward)
    train_rl(run)
    assert handed == [{("label_f1",)}, {("label_f1", "match")}]
