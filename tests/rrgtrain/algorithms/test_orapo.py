"""OraPO's oracle in the group, its mixing weight, and who is preferred to whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from rrgpolicy.model.policy import Policy
from rrgtrain.algorithms import Group, Objective, build_algorithm
from rrgtrain.algorithms.base import as_objective
from rrgtrain.algorithms.group import scored_members
from rrgtrain.algorithms.orapo import ZeroRate, mixing_weight, oracle_against_sampled, zero_shares
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe
from rrgtrain.train import Batch
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import accumulate, gradients, groups_of, recipe, rollout_logps

POLICY = tiny_policy()
TOTALS = (0.3, 0.0, 0.9, 0.2, 0.7)
SAMPLED = [["Edema.", "Clear.", "The heart is enlarged."], ["No effusion.", "Clear lungs."]]


def spread(groups: list[Group], totals: np.ndarray) -> torch.Tensor:
    """[S] rewards, NaN at the oracle."""
    return Batch(groups, scores={"total": totals}).rewards


def completed(name: str = "orapo", *, edited: bool = False) -> list[Group]:
    algorithm = build_algorithm(recipe(f"rl.algorithm={name}"))
    given = groups_of(POLICY, SAMPLED, edited=edited)
    return algorithm.complete(given, 0, POLICY.codec.reencode_from)[0]


def learned(
    reference: Policy | None, totals: Sequence[float], *words: str
) -> tuple[Objective, dict[str, float], dict[str, torch.Tensor]]:
    """The objective of these rewards, the metrics of its update, and the gradients."""
    cfg = recipe("rl.algorithm=orapo", "rl.beta=0", *words)
    algorithm, groups = build_algorithm(cfg), completed()
    objective = as_objective(algorithm.advantages(groups, spread(groups, np.array(totals))))
    update = accumulate(POLICY, reference, groups, objective, algorithm.loss, cfg.rl)
    return objective, update.metrics, gradients(POLICY)


def test_the_oracle_is_the_reference_and_does_not_compete() -> None:
    for group in completed():
        oracle = group.members[-1]
        assert oracle.origin == "oracle" and oracle.text == group.study.report
        assert POLICY.codec.decode(oracle.ids) == oracle.text
        assert int(oracle.ids[-1]) == POLICY.end_of_turn and not oracle.scored
    assert scored_members(completed()).tolist() == [True] * 3 + [False] + [True] * 2 + [False]


def test_pairs_by_hand() -> None:
    pairs = oracle_against_sampled(completed(), torch.tensor([0.3, 0.1]))
    assert pairs.positive.tolist() == [3, 3, 3, 6, 6]
    assert pairs.negative.tolist() == [0, 1, 2, 4, 5]
    assert pairs.weight.tolist() == pytest.approx([0.1] * 3 + [0.05] * 2)


def test_a_zero_is_exactly_zero_and_sampled() -> None:
    groups = completed(edited=True)
    rewards = torch.full((len([m for g in groups for m in g.members]),), 1e-12)
    assert zero_shares(groups, rewards) == [0.0, 0.0]
    rewards[1] = 0.0
    assert zero_shares(groups, rewards) == pytest.approx([1 / 3, 0.0])
    for k, m in enumerate(m for g in groups for m in g.members):
        rewards[k] = 0.0 if m.origin != "sampled" else 0.4
    assert zero_shares(groups, rewards) == [0.0, 0.0]


def test_the_rate_of_a_batch_is_smoothed_though_no_prompt_comes_twice() -> None:
    rates = ZeroRate(0.5, batch=True)
    assert rates.of(["a", "b"], [1.0, 0.5]) == [0.75, 0.75]
    assert rates.of(["c", "d"], [0.25, 0.25]) == [0.5, 0.5]
    other = ZeroRate(0.5, batch=True)
    other.load_state_dict(rates.state_dict())
    assert other.of(["e"], [0.0]) == [0.25]
    cfg = recipe("rl.algorithm=orapo", "oracle.smooth=batch")
    algorithm, groups = build_algorithm(cfg), completed()
    found = algorithm.advantages(groups, spread(groups, torch.tensor([0.0, 0, 0, 1, 1]).numpy()))
    assert isinstance(found, Objective) and found.group_weight is not None
    assert mixing_weight(0.5, cfg.oracle) == pytest.approx(0.075)
    assert found.group_weight.tolist() == pytest.approx([1 - 0.075] * 2)


def plain_parts(batch: Batch, cfg: Recipe) -> tuple[torch.Tensor, torch.Tensor]:
    """∂loss/∂logp of the policy loss and of the oracle's, by autograd of their formulas."""
    assert batch.old is not None and batch.ref is not None
    logps, objective = batch.old.clone().requires_grad_(), batch.objective
    lengths, counted = batch.offsets.diff(), batch.scored[batch.member_of_token]
    group = torch.repeat_interleave(torch.tensor([len(g.members) for g in batch.groups]))
    outer = objective.group_weight[group][batch.member_of_token]  # type: ignore[index]
    x = batch.ref - logps
    each = -batch.advantages * (logps - logps.detach()).exp() + cfg.rl.beta * (x.exp() - x - 1)
    share = outer / (int(batch.scored.sum()) * cfg.rl.max_new_tokens)
    policy = (each * share)[counted].sum()
    means = [part.mean() for part in (logps - batch.ref).split(lengths.tolist())]
    oracle = torch.zeros((), dtype=torch.float64)
    if objective.preference is not None:
        pairs, tau = objective.preference.pairs, objective.preference.tau
        for y, o, w in zip(*(t.tolist() for t in pairs), strict=True):
            oracle = oracle - w * torch.nn.functional.logsigmoid(tau * (means[y] - means[o]))
    if objective.likelihood is not None:
        for w, part in zip(objective.likelihood, logps.split(lengths.tolist()), strict=True):
            oracle = oracle - w * part.mean()
    return tuple(torch.autograd.grad(part, logps)[0] for part in (policy, oracle))  # type: ignore[return-value]


@pytest.mark.parametrize("loss", ["dpo", "sft"])
@pytest.mark.parametrize("budget", [1, 16384])
def test_the_ratio_is_that_of_the_slopes_of_each_part(loss: str, budget: int) -> None:
    given = "rl.algorithm=orapo", "rl.beta=0.1", f"oracle.loss={loss}", f"rl.token_budget={budget}"
    cfg, policy, reference = recipe(*given), *(tiny_policy(dtype=torch.float64) for _ in range(2))
    algorithm, groups = build_algorithm(cfg), completed()
    with torch.no_grad():
        for parameter in reference.model.parameters():
            parameter.mul_(1.05)
    rewards = spread(groups, np.array(TOTALS))
    whole = as_objective(algorithm.advantages(groups, rewards))
    assert whole.logs_gradient_ratio
    calls = (policy, reference, groups, whole, algorithm.loss, cfg.rl)
    of_policy, of_oracle = plain_parts(rollout_logps(*calls), cfg)
    found = accumulate(*calls)
    wanted = float(of_oracle.norm() / of_policy.norm())
    assert found.metrics["oracle/gradient_ratio"] == pytest.approx(wanted, rel=1e-7)
    # what is learned is what it was, to the bit
    measured = gradients(policy)
    calls = (policy, reference, groups, replace(whole, logs_gradient_ratio=False), *calls[4:])
    plain = accumulate(*calls)
    assert "oracle/gradient_ratio" not in plain.metrics
    assert (plain.loss, plain.tokens) == (found.loss, found.tokens)
    assert all(torch.equal(measured[n], g) for n, g in gradients(policy).items())


@pytest.mark.parametrize("loss", ["dpo", "sft"])
def test_a_group_without_reward_still_teaches(loss: str) -> None:
    """All rewards 0: no advantage, no KL, and the preference moves the policy nevertheless."""
    algorithm = build_algorithm(recipe("rl.algorithm=orapo", f"oracle.loss={loss}", "rl.beta=0"))
    assert algorithm.needs_reference == (loss == "dpo")
    objective, metrics, slopes = learned(tiny_policy(), [0.0] * 5, f"oracle.loss={loss}")
    assert not objective.advantages.any() and any(g.any() for g in slopes.values())
    assert metrics["oracle/zero_rate"] == 1.0
    assert metrics["oracle/weight"] == pytest.approx(0.15)
    assert "oracle/gradient_ratio" not in metrics, "the policy loss has no gradient"


def test_bounds_that_cross() -> None:
    with pytest.raises(UserError, match="oracle.low=0.2 exceeds oracle.high=0.15; swap them"):
        build_algorithm(recipe("rl.algorithm=orapo", "oracle.low=0.2"))


def test_a_pair_across_groups_is_refused() -> None:
    cfg = recipe("rl.algorithm=orapo", "rl.beta=0", "rl.token_budget=1")
    algorithm, groups = build_algorithm(cfg), completed()
    objective = algorithm.advantages(groups, spread(groups, torch.zeros(5).numpy()))
    assert isinstance(objective, Objective) and objective.preference is not None
    pairs = objective.preference.pairs
    pairs = pairs._replace(negative=pairs.negative.flip(0).contiguous())
    objective = replace(objective, preference=replace(objective.preference, pairs=pairs))
    with pytest.raises(UserError, match="names members of two groups; keep it within one"):
        accumulate(POLICY, tiny_policy(), groups, objective, algorithm.loss, cfg.rl)
    gradients(POLICY)
    whole = Batch.of(groups, objective, cfg.rl)
    with pytest.raises(UserError, match="names members of two groups; keep it within one"):
        whole.part([0], cfg.rl)  # it would lose the pair in silence


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("weight", r"gave weight of shape \(2,\); wanted \(\d+,\), one per token"),
        ("mask", "one per token"),
        ("group_weight", r"wanted \(2,\), one per group"),
        ("likelihood", r"wanted \(7,\), one per member"),
    ],
)
def test_an_objective_of_another_shape(field: str, told: str) -> None:
    groups = completed()
    wrong = torch.ones(2) if field != "group_weight" else torch.ones(3)
    objective = Objective(torch.zeros(7), **{field: wrong})
    cfg = recipe("rl.algorithm=dr_grpo")
    loss = build_algorithm(cfg).loss
    with pytest.raises(UserError, match=told):
        accumulate(POLICY, None, groups, objective, loss, cfg.rl)


def test_a_masked_token_has_no_gradient_and_no_length() -> None:
    """The same as the report without its last token, under an aggregation that divides by it."""
    groups = groups_of(POLICY, [["Edema.", "Clear lungs."]], edited=False)
    cfg = recipe("rl.algorithm=grpo", "rl.aggregation=grpo", "rl.beta=0")
    loss, advantages = build_algorithm(cfg).loss, torch.tensor([1.0, -1.0])
    lengths = [len(m.ids) for m in groups[0].members]
    mask = torch.ones(sum(lengths), dtype=torch.bool)
    mask[lengths[0] - 1] = False
    masked = accumulate(POLICY, None, groups, Objective(advantages, mask=mask), loss, cfg.rl)
    one = gradients(POLICY)
    short = replace(groups[0].members[0], ids=groups[0].members[0].ids[:-1])
    cut = [replace(groups[0], members=(short, groups[0].members[1]))]
    plain = accumulate(POLICY, None, cut, advantages, loss, cfg.rl)
    two = gradients(POLICY)
    assert masked.loss == pytest.approx(plain.loss, abs=1e-6)
    for name, gradient in one.items():
        torch.testing.assert_close(gradient, two[name], rtol=1e-3, atol=1e-5)
