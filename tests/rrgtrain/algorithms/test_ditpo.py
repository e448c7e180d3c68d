"""DiTPO's weights, and GDPO's terms by the paper's formulas written out."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from rrgpolicy.ranks import ranks
from rrgtrain.algorithms import Context, Group, Objective, build_algorithm
from rrgtrain.algorithms.ditpo import tfidf
from rrgtrain.algorithms.group import members, token_offsets
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe, RewardSettings
from rrgtrain.train import zero_variance
from tests.rrgpolicy.model.common import REPORTS, prompt, tiny_policy
from tests.rrgtrain.common import Batch, groups_of, member, recipe, studies
from tests.rrgtrain.train.loops import trained

POLICY = tiny_policy()


def groups(*, edited: bool = False) -> list[Group]:
    sampled = [["The heart is enlarged.", "The heart is normal.", "Edema."], ["Clear.", "Clear."]]
    return groups_of(POLICY, sampled, edited=edited)


def with_oracle(given: list[Group]) -> list[Group]:
    oracle = replace(member(POLICY, REPORTS[1], "oracle"), scored=False)
    return [group.with_members([oracle]) for group in given]


def parts(weights: torch.Tensor, given: list[Group]) -> list[torch.Tensor]:
    return list(weights.split(token_offsets(given).diff().tolist()))


def test_an_unfinished_report_has_no_end_of_turn_to_leave_out() -> None:
    given = groups()
    whole = member(POLICY, "Consolidation")
    cut = replace(whole, ids=whole.ids[:-1], finished=False)
    given[0] = replace(given[0], members=(*given[0].members[:2], cut))
    first, second, third = parts(tfidf(given, 4.0), given)[:3]
    assert float(third[-1]) > 1.0
    assert float(first[-1]) == float(second[-1]) == 1.0, "an end that not all reports have"


def ready(*overrides: str):
    algorithm = build_algorithm(recipe("rl.algorithm=ditpo", *overrides))
    algorithm.prepare(Context(POLICY.codec, studies(6)))
    return algorithm


def objective_of(algorithm, given: list[Group]) -> Objective:
    rewards = torch.arange(len(members(given)), dtype=torch.float64)
    found = algorithm.advantages(given, rewards)
    assert isinstance(found, Objective)
    return found


def test_both_adds_what_each_adds_to_one() -> None:
    given = groups()
    common = ["token_weights.labeller=distilled", "token_weights.distil_steps=2"]
    found = {
        kind: objective_of(ready(*common, f"token_weights.kind={kind}"), given).weight
        for kind in ("tfidf", "saliency", "both")
    }
    torch.testing.assert_close(found["both"], found["tfidf"] + found["saliency"] - 1)
    assert float(found["saliency"].max()) > 1.0
    assert all(bool((w >= 1 - 1e-6).all()) for w in found.values())


def test_the_advantages_themselves_stay_and_the_weights_are_logged() -> None:
    given = groups()
    weighed = objective_of(ready("token_weights.kind=tfidf"), given)
    plain = build_algorithm(recipe("rl.algorithm=grpo")).advantages(
        given, torch.arange(5, dtype=torch.float64)
    )
    assert torch.equal(weighed.advantages, plain)
    assert weighed.metrics["token_weight/max"] == pytest.approx(float(weighed.weight.max()))
    bounded = objective_of(ready("token_weights.kind=tfidf", "token_weights.bound=1.5"), given)
    torch.testing.assert_close(bounded.weight, weighed.weight.clamp(max=1.5), rtol=0, atol=0)
    assert bounded.metrics == weighed.metrics and weighed.weight.max() > 1.5
    assert 0 < weighed.metrics["token_weight/above_1"] < 1


def test_the_findings_of_the_reference_decide() -> None:
    """A study without a positive finding weighs all tokens alike."""
    algorithm = ready("token_weights.labeller=distilled", "token_weights.distil_steps=2")
    given = groups()
    clear = replace(given[0].study, report="Lungs are clear.", id="clear")
    first, *_ = parts(objective_of(algorithm, given).weight, given)
    assert float(first.max()) > 1.0
    given[0] = replace(given[0], study=clear)
    first, *_ = parts(objective_of(algorithm, given).weight, given)
    assert first.tolist() == [1.0] * len(first)


class Asked(Exception):
    """Ends a rank where it would speak to the others."""


def test_a_rank_reads_the_groups_that_it_has_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = ready("token_weights.labeller=distilled", "token_weights.distil_steps=2")
    given = with_oracle(groups() + groups(edited=True))
    owner = [2, 0, 2, 0]  # rank 1 has none
    given = [replace(group, rank=rank) for group, rank in zip(given, owner, strict=True)]
    whole = objective_of(algorithm, given).weight
    own: list[torch.Tensor] = []

    def tell(weights: torch.Tensor) -> None:
        own.append(weights)
        raise Asked

    monkeypatch.setattr(ranks, "size", lambda: 3)
    monkeypatch.setattr(ranks, "gather", tell)
    for rank in range(3):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        with pytest.raises(Asked):
            objective_of(algorithm, given)
    sizes = [sum(len(m.ids) for m in members([group])) for group in given]
    assert list(map(len, own)) == [sizes[1] + sizes[3], 0, sizes[0] + sizes[2]]
    monkeypatch.setattr(ranks, "gather", lambda weights: own)
    torch.testing.assert_close(objective_of(algorithm, given).weight, whole)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ((), "token_weights.labeller=rules has no gradient to weigh tokens by; use chexbert"),
        (("token_weights.labeller=chexbert",), "set reward.options.chexbert.weights=PATH"),
        (("token_weights.labeller=chexbrt",), "unknown labeller 'chexbrt'"),
    ],
)
def test_a_labeller_without_gradient_or_weights(overrides: tuple[str, ...], told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        build_algorithm(recipe("rl.algorithm=ditpo", *overrides))
    assert "\n" not in str(caught.value)


def test_data_that_lacks_what_the_weights_need() -> None:
    bare = [replace(study, labels=None) for study in studies(3)]
    against_labels = build_algorithm(
        recipe("rl.algorithm=ditpo", "token_weights.labeller=distilled", "reward.against=labels")
    )
    with pytest.raises(UserError, match="study train-0 has none; use token_weights.kind=tfidf"):
        against_labels.check(bare)
    silent = [replace(study, report=None) for study in studies(3)]
    with pytest.raises(UserError, match="learns from training reports, and this data has none"):
        against_labels.check(silent)
    against_labels.check(studies(3))


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
    chosen = gdpo(match=0.5)
    algorithm = build_algorithm(chosen)
    spied = Mock(wraps=algorithm.advantages)
    trained(tmp_path / "run", chosen, algorithm=replace(algorithm, advantages=spied))
    groups_of_steps = [call.args[0] for call in spied.call_args_list]
    handed = [{tuple(m.terms) for g in groups for m in g.members} for groups in groups_of_steps]
    assert handed == [{("label_f1",)}, {("label_f1", "match")}]
