"""DiTPO's weights: which tokens, which members, which labeller, and what cannot be weighed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rrgpolicy.ranks import ranks
from rrgtrain.algorithms import Context, Group, Objective, build_algorithm
from rrgtrain.algorithms.ditpo import tfidf
from rrgtrain.algorithms.group import members, token_offsets
from rrgtrain.errors import UserError
from tests.rrgpolicy.model.common import REPORTS, tiny_policy
from tests.rrgtrain.common import groups_of, member, recipe, studies

POLICY = tiny_policy()


def groups(*, edited: bool = False) -> list[Group]:
    sampled = [["The heart is enlarged.", "The heart is normal.", "Edema."], ["Clear.", "Clear."]]
    return groups_of(POLICY, sampled, edited=edited)


def with_oracle(given: list[Group]) -> list[Group]:
    oracle = replace(member(POLICY, REPORTS[1], "oracle"), scored=False)
    return [group.with_members([oracle]) for group in given]


def parts(weights: torch.Tensor, given: list[Group]) -> list[torch.Tensor]:
    return list(weights.split(token_offsets(given).diff().tolist()))


def test_what_all_reports_say_weighs_one_and_what_one_says_weighs_more() -> None:
    given = groups()
    first, second, third, fourth, fifth = parts(tfidf(given, 4.0), given)
    shared = set(given[0].members[0].ids.tolist()) & set(given[0].members[1].ids.tolist())
    for found, m in ((first, given[0].members[0]), (second, given[0].members[1])):
        own = [w for w, i in zip(found[:-1], m.ids[:-1].tolist(), strict=True) if i not in shared]
        other = [w for w, i in zip(found[:-1], m.ids[:-1].tolist(), strict=True) if i in shared]
        assert own and other and min(own) > max(1.0, *(float(w) for w in other))
    assert fourth.tolist() == fifth.tolist() == [1.0] * len(fourth)
    assert all(float(part[-1]) == 1.0 for part in (first, second, third)), "the end of turn"


def test_a_member_that_does_not_compete_weighs_one_and_counts_in_no_frequency() -> None:
    given = groups()
    joined = with_oracle(given)
    alone, beside = parts(tfidf(given, 4.0), given), parts(tfidf(joined, 4.0), joined)
    flat = members(joined)
    assert all(bool((w == 1).all()) for w, m in zip(beside, flat, strict=True) if not m.scored)
    kept = [w for w, m in zip(beside, flat, strict=True) if m.scored]
    assert all(torch.equal(a, b) for a, b in zip(alone, kept, strict=True))


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


def test_without_preparation_it_says_so() -> None:
    algorithm = build_algorithm(recipe("rl.algorithm=ditpo", "token_weights.labeller=distilled"))
    with pytest.raises(ValueError, match=r"before prepare\(context\) was called"):
        objective_of(algorithm, groups())


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
