"""Head and policy loss in one are both one after the other, where nobody else reads log-probs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from rrgkern import PreferencePairs
from rrgpolicy.model.policy import Policy, add_lora
from rrgtrain.algorithms import build_algorithm
from rrgtrain.algorithms.group import Group, Objective, Preference, token_offsets
from rrgtrain.schema import LoraSettings
from rrgtrain.train import Gradients, SamplerWatch
from rrgtrain.train import gradients as gradients_module
from rrgtrain.train.loader import PromptLoader
from rrgtrain.train.optim import adamw
from rrgtrain.train.reference import reference_of
from rrgtrain.train.rl import update
from tests.rrgpolicy.model.common import tiny_policy
from tests.rrgtrain.common import Batch, accumulate, gradients, rollout_logps, run_of
from tests.rrgtrain.train.test_update_steps import batch, setting


def adapted(dropout: float, dtype: torch.dtype = torch.float64) -> Policy:
    """A policy of which an adapter trains, that has learned something."""
    policy = tiny_policy(dtype=dtype)
    add_lora(policy, LoraSettings(rank=2, dropout=dropout), 0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    policy.model.train()
    return policy


class Doors:
    """Counts the calls of the two doors to the policy loss."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = {"policy_loss": 0, "linear_policy_loss": 0}
        for name in self.calls:
            monkeypatch.setattr(gradients_module, name, self._counted(name))

    def _counted(self, name: str) -> Any:
        door = getattr(gradients_module, name)

        def counted(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return door(*args, **options)

        return counted


def sampled_elsewhere(groups: list[Group]) -> list[Group]:
    """The groups with the log-probabilities of an engine, of which the loss is corrected."""
    generator = torch.Generator().manual_seed(1)

    def of(member: Any) -> Any:
        if member.origin != "sampled":
            return member
        logps = -6.0 + torch.randn(len(member.ids), generator=generator)
        return replace(member, sampler_logps=logps, corrected=True)

    return [replace(g, members=tuple(map(of, g.members))) for g in groups]


CASES = {
    "plain": (),
    "micro-batches": ("rl.token_budget=1",),
    "KL": ("rl.beta=0.1",),
    "old log-probabilities": ("rl.beta=0.1", "rl.epochs=2"),
    "weights": (),
    "mask": ("rl.aggregation=bnpo",),
    "corrected": ("rl.epochs=2",),
}


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("case", CASES)
def test_loss_gradients_and_metrics_are_equal(
    monkeypatch: pytest.MonkeyPatch, case: str, dropout: float
) -> None:
    policy, cfg, doors = adapted(dropout), setting(*CASES[case]), Doors(monkeypatch)
    reference = reference_of(policy) if cfg.rl.beta else None
    groups, values = batch(policy)
    if case == "corrected":
        groups = sampled_elsewhere(groups)
    objective, tokens = Objective(values), int(token_offsets(groups)[-1])
    if case == "weights":
        objective = Objective(values, weight=torch.linspace(0, 2, tokens, dtype=torch.float64))
    if case == "mask":
        objective = Objective(values, mask=torch.arange(tokens) % 3 != 0)
    loss, fixed = build_algorithm(cfg).loss, None
    if cfg.rl.epochs > 1:
        fixed = rollout_logps(policy, reference, groups, objective, loss, cfg.rl)
        generator = torch.Generator().manual_seed(2)
        moved = 0.1 * torch.randn(tokens, generator=generator, dtype=torch.float64)
        fixed = replace(fixed, old=fixed.old + moved)  # type: ignore[operator]
    made: list[tuple[Gradients, dict[str, torch.Tensor]]] = []
    for read_logps in (True, False):
        torch.manual_seed(3)  # of dropout
        done = accumulate(
            *(policy, reference, groups, objective, loss, cfg.rl),
            fixed=fixed,
            read_logps=read_logps,
        )
        made.append((done, gradients(policy)))
    assert doors.calls["policy_loss"] == doors.calls["linear_policy_loss"] >= 1
    (one, wanted), (two, got) = made
    assert one.computed and not two.computed and one.tokens == two.tokens
    assert two.metrics.keys() == one.metrics.keys() and ("kl" in one.metrics) == (cfg.rl.beta > 0)
    for name, value in one.metrics.items():
        assert two.metrics[name] == pytest.approx(value, rel=1e-10, abs=1e-12), name
    assert got.keys() == wanted.keys()
    largest = max(float(value.abs().max()) for value in wanted.values())
    assert largest > 0
    for name, value in wanted.items():
        torch.testing.assert_close(got[name], value, rtol=0, atol=1e-9 * largest)


@pytest.mark.parametrize(
    ("dropout", "overrides", "calls"),
    [
        (0.1, (), (0, 1)),  # the gap to the sampler is measured on groups computed anew
        (0.0, (), (1, 0)),  # on the log-probabilities of the update
        (0.0, ("rl.epochs=3",), (1, 2)),  # on those of the first
        (None, ("rl.epochs=2",), (2, 0)),  # a head that trains
    ],
)
def test_an_update_takes_both_in_one_where_no_log_probability_is_read(
    monkeypatch: pytest.MonkeyPatch,
    dropout: float | None,
    overrides: tuple[str, ...],
    calls: tuple[int, int],
) -> None:
    policy = tiny_policy() if dropout is None else adapted(dropout, torch.float32)
    cfg = setting("rollout.max_gap=100", *overrides)
    groups, values = batch(policy)
    algorithm = build_algorithm(cfg)
    run = run_of(policy, PromptLoader(policy, "short"), [], cfg, algorithm=algorithm)
    run.watch = SamplerWatch(policy, algorithm, cfg.rl, cfg.rollout.max_gap)
    run.optimizer = adamw(policy.model, 1e-3, 0.0)
    doors = Doors(monkeypatch)
    groups = sampled_elsewhere(groups)
    row, _ = update(run, Batch.of(groups, values, cfg.rl), 1e-3, (0, 1))
    assert tuple(doors.calls.values()) == calls
    assert "sampler/gap_mean" in row


def test_what_else_reads_log_probabilities_keeps_them() -> None:
    policy, values = adapted(0.1), torch.zeros(2)
    pairs = PreferencePairs(torch.tensor([0]), torch.tensor([1]), torch.ones(1))
    alone = gradients_module.is_loss_of_frozen_head
    assert alone(policy, Objective(values))
    assert not alone(policy, Objective(values, preference=Preference(pairs)))
    assert not alone(policy, Objective(values, likelihood=torch.ones(2)))
    assert not alone(tiny_policy(), Objective(values))
