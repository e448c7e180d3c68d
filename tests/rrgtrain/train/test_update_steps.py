"""Optimiser steps on one batch: what is computed, how often, and that several are what they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from rrgkern import PreferencePairs
from rrgpolicy.model import forward as forward_module
from rrgpolicy.model.policy import Policy
from rrgpolicy.rollout.policy_sampler import PolicySampler
from rrgtrain.algorithms import Group, build_algorithm
from rrgtrain.algorithms.group import Objective, Preference, members, token_offsets
from rrgtrain.schema import Recipe
from rrgtrain.train import SamplerWatch
from rrgtrain.train import gradients as gradients_module
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.optim import adamw
from rrgtrain.train.reference import Reference, reference_of
from rrgtrain.train.rl import is_on_policy, update
from rrgtrain.train.rl_run import RlRun
from tests.rrgpolicy.model.common import REPORTS, tiny_policy
from tests.rrgtrain.common import (
    Batch,
    accumulate,
    gradients,
    groups_of,
    recipe,
    rollout_logps,
    run_of,
)

TEXTS = [
    [REPORTS[0], "Lungs are clear.", "No effusion."],
    ["Edema.", REPORTS[3]],
    ["Clear.", "Lungs clear.", "Heart."],
    [REPORTS[1], "Possible pneumonia."],
]


def setting(*overrides: str) -> Recipe:
    return recipe("rl.algorithm=dr_grpo", "rl.max_new_tokens=48", "rl.temperature=0.7", *overrides)


def batch(policy: Policy) -> tuple[list[Group], torch.Tensor]:
    """Groups with an edit in every other one, and advantages; the third group's are all 0."""
    groups = groups_of(policy, TEXTS, edited=True)
    values = torch.linspace(-1, 1, len(members(groups)), dtype=torch.float64)
    third = slice(len(members(groups[:2])), len(members(groups[:3])))
    values[third] = 0
    return groups, values


class Passes:
    """Counts the forwards of the policy and of the reference, and the rows the head sees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, policy: Policy) -> None:
        self.policy, self.of_policy, self.of_reference, self.rows = policy, 0, 0, 0
        forward, head = gradients_module._forward, forward_module.linear_token_logps

        def counted(asked: Policy, groups: list[Group], temperature: float) -> tuple:
            if asked is policy:
                self.of_policy += 1
            else:
                self.of_reference += 1
            return forward(asked, groups, temperature)

        def counted_head(hidden: torch.Tensor, *args: Any, **options: Any) -> Any:
            self.rows += len(hidden)
            return head(hidden, *args, **options)

        monkeypatch.setattr(gradients_module, "_forward", counted)
        monkeypatch.setattr(forward_module, "linear_token_logps", counted_head)


def ready(policy: Policy, cfg: Recipe, reference: Reference | None = None) -> RlRun:
    """A run before its update."""
    algorithm = build_algorithm(cfg)
    of_run = run_of(policy, PromptLoader(policy, "short"), [], cfg, algorithm=algorithm)
    of_run.reference, of_run.optimizer = reference, adamw(policy.model, 1e-3, 0.0)
    of_run.watch = SamplerWatch(policy, algorithm, cfg.rl, cfg.rollout.max_gap)
    return of_run


def run(policy: Policy, cfg: Recipe, reference: Reference | None = None) -> dict[str, float]:
    groups, values = batch(policy)
    whole = Batch.of(groups, values, cfg.rl)
    return update(ready(policy, cfg, reference), whole, 0.01, (0, 1))[0]


@pytest.mark.parametrize(
    ("words", "of_policy", "of_reference"),
    [
        (["rl.beta=0"], 1, 0),  # no old log-probs, no reference
        (["rl.beta=0.01"], 1, 1),
        (["rl.beta=0.01", "rl.epochs=3"], 1 + 3, 1),
    ],
)
def test_an_update_takes_no_more_passes_than_it_needs(words, of_policy, of_reference, monkeypatch):
    policy = tiny_policy()
    reference = reference_of(policy) if of_reference else None
    passes = Passes(monkeypatch, policy)
    metrics = run(policy, setting(*words), reference)
    assert (passes.of_policy, passes.of_reference) == (of_policy, of_reference)
    groups, values = batch(policy)
    lengths = token_offsets(groups).diff()
    if of_policy > 1:
        assert metrics["ratio_max"] > 1.0 and metrics["kl"] > 0
    elif of_reference:
        assert passes.rows == 2 * int(lengths.sum()), "KL needs every member"
    else:
        assert passes.rows == int(lengths[values != 0].sum()), "no prompts, no zero advantages"
        assert metrics["ratio_mean"] == metrics["ratio_max"] == 1.0


def test_the_sampler_gives_its_memory_back_before_the_first_forward(monkeypatch):
    policy, forwards = tiny_policy(), []
    passes = Passes(monkeypatch, policy)
    monkeypatch.setattr(
        PolicySampler, "release", lambda self, policy: forwards.append(passes.of_policy)
    )
    run(policy, setting("rl.epochs=2"))
    assert forwards == [0]


def test_the_first_of_several_has_the_gradient_of_the_only_one() -> None:
    policy = tiny_policy(dtype=torch.float64)
    reference = reference_of(tiny_policy(dtype=torch.float64))
    groups, values = batch(policy)
    cfg = setting("rl.beta=0.1", "rl.token_budget=120")
    loss = build_algorithm(cfg).loss
    alone = accumulate(policy, reference, groups, values, loss, cfg.rl)
    wanted = gradients(policy)
    fixed = rollout_logps(policy, reference, groups, values, loss, cfg.rl)
    first = accumulate(policy, reference, groups, values, loss, cfg.rl, fixed=fixed)
    found = gradients(policy)
    assert first.loss == pytest.approx(alone.loss, rel=1e-9)
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-6, atol=1e-9)


def test_a_stale_batch_is_clipped_against_the_old_policy() -> None:
    policy = tiny_policy()
    groups, values = batch(policy)
    cfg = setting("rl.beta=0", "rl.eps_low=0.05", "rl.eps_high=0.05")
    loss = build_algorithm(cfg).loss
    fixed = rollout_logps(policy, None, groups, values, loss, cfg.rl)
    assert fixed.old is not None
    shifted = replace(fixed, old=fixed.old - 0.5)
    found = accumulate(policy, None, groups, values, loss, cfg.rl, fixed=shifted)
    assert found.metrics["ratio_max"] == pytest.approx(1.6487, rel=1e-3)
    assert found.metrics["clip_high"] > 0
    assert found.metrics["ratio_mean"] == pytest.approx(1.6487, rel=1e-3), "edited ones too"


def test_a_report_that_the_policy_has_left_pulls_only_where_it_earns() -> None:
    policy = tiny_policy()
    groups, values = batch(policy)
    wide = ("rl.beta=0", "rl.eps_low=0.9")  # else the clip alone would take their pull
    cfg, own = setting(*wide), setting(*wide, "rl.off_policy_mask_threshold=0.4")
    loss, slopes = build_algorithm(cfg).loss, []
    fixed = rollout_logps(policy, None, groups, values, loss, cfg.rl)
    stale = replace(fixed, old=fixed.old + 0.5)
    for of, settings in ((values, own), (values.clamp(min=0), cfg), (values, cfg)):
        accumulate(policy, None, groups, of, loss, settings.rl, fixed=stale, read_logps=False)
        slopes.append(gradients(policy)["model.language_model.norm.weight"])
    torch.testing.assert_close(slopes[0], slopes[1])
    assert not torch.allclose(slopes[0], slopes[2], rtol=0.1)


def test_the_budget_changes_no_metric_of_a_later_update() -> None:
    """Ratios differ by then, and the reference serves a preference of the first group alone."""
    policy = tiny_policy(dtype=torch.float64)
    reference = reference_of(tiny_policy(dtype=torch.float64))
    with torch.no_grad():
        for parameter in reference.model.parameters():
            parameter.mul_(1.1)
    groups, values = batch(policy)
    pair = PreferencePairs(torch.tensor([0]), torch.tensor([1]), torch.tensor([0.3]))
    objective = Objective(values, preference=Preference(pair))
    rows = []
    for budget in (1, 10**6):
        cfg = setting("rl.beta=0", "rl.epochs=2", f"rl.token_budget={budget}")
        loss = build_algorithm(cfg).loss
        fixed = rollout_logps(policy, reference, groups, objective, loss, cfg.rl)
        moved = 0.5 * torch.randn(len(fixed.old), generator=torch.Generator().manual_seed(1))
        fixed = replace(fixed, old=fixed.old + moved)
        done = accumulate(policy, reference, groups, objective, loss, cfg.rl, fixed=fixed)
        rows.append(done.metrics)
    assert rows[0] == pytest.approx(rows[1], rel=1e-6)
    assert rows[0]["kl"] > 0 and rows[0]["effective_sample_size"] < 0.9


def test_minibatches_are_disjoint_whole_and_drawn_by_their_key() -> None:
    policy = tiny_policy()
    groups, values = batch(policy)
    settings = setting().rl
    whole = Batch.of(groups, values, settings)

    def order(*key: int) -> list[list[int]]:
        return [[g.index for g in part.groups] for part in whole.mini_batches(3, settings, key)]

    assert sorted(i for part in order(0, 1) for i in part) == [g.index for g in groups]
    assert [len(part) for part in order(0, 1)] == [3, 1]
    assert order(0, 1) == order(0, 1)
    assert len({str(order(0, k)) for k in range(8)}) > 1
    (only,) = whole.mini_batches(None, settings, (0,))
    assert only is whole


def test_a_part_of_the_batch_is_a_batch_of_its_own() -> None:
    """Cut out, or built from those groups alone: the same loss and gradient."""
    policy = tiny_policy(dtype=torch.float64)
    reference = reference_of(tiny_policy(dtype=torch.float64))
    groups, values = batch(policy)
    tokens = int(token_offsets(groups)[-1])
    count, chosen = len(members(groups)), [1, 3]
    sizes = [len(g.members) for g in groups]
    first = [sum(sizes[:b]) for b in range(4)]
    generator = torch.Generator().manual_seed(0)

    def drawn(n: int) -> torch.Tensor:
        return torch.rand(n, generator=generator, dtype=torch.float64)

    pairs = PreferencePairs(
        torch.tensor([first[0], first[1], first[3]]),
        torch.tensor([first[0] + 1, first[1] + 1, first[3] + 1]),
        torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64),
    )
    whole = Objective(
        values,
        weight=1 + drawn(tokens),
        mask=drawn(tokens) < 0.8,
        group_weight=drawn(4),
        preference=Preference(pairs),
        likelihood=drawn(count),
    )
    cfg = setting("rl.beta=0.1")
    old, ref = -1 - drawn(tokens), -1 - drawn(tokens)
    part = replace(Batch.of(groups, whole, cfg.rl), old=old, ref=ref).part(chosen, cfg.rl)
    assert [g.index for g in part.groups] == [11, 13]
    rows = [r for b in chosen for r in range(first[b], first[b] + sizes[b])]
    bounds = token_offsets(groups).tolist()
    index = torch.cat([torch.arange(bounds[r], bounds[r + 1]) for r in rows])
    assert whole.weight is not None and whole.mask is not None
    assert whole.group_weight is not None and whole.likelihood is not None
    by_hand = Objective(
        values[rows],
        weight=whole.weight[index],
        mask=whole.mask[index],
        group_weight=whole.group_weight[chosen],
        preference=Preference(
            PreferencePairs(
                torch.tensor([0, sizes[1]]),
                torch.tensor([1, sizes[1] + 1]),
                2 * torch.tensor([0.2, 0.3], dtype=torch.float64),
            )
        ),
        likelihood=2 * whole.likelihood[rows],
    )
    loss = build_algorithm(cfg).loss
    alone = replace(Batch.of(part.groups, by_hand, cfg.rl), old=old[index], ref=ref[index])
    results = []
    for batch_ in (part, alone):
        made = gradients_module.accumulate_gradients(policy, reference, batch_, loss, cfg.rl)
        results.append((made.read().loss, gradients(policy)))
    (one, left), (two, right) = results
    assert one == pytest.approx(two, rel=1e-12)
    assert left and all(torch.equal(g, right[n]) for n, g in left.items())


@pytest.mark.parametrize(
    ("overrides", "alone"),
    [([], True), (["rl.epochs=2"], False), (["rl.minibatch=4"], True), (["rl.minibatch=3"], False)],
)
def test_when_a_ratio_is_one(overrides: list[str], alone: bool) -> None:
    assert is_on_policy(setting(*overrides).rl, 4) is alone
