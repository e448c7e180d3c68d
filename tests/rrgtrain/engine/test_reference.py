"""The reference: its log-probabilities are the start's, and it costs no more than it must."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from peft import PeftModel

from rrgtrain.engine import reference as reference_module
from rrgtrain.engine.reference import START, computing, reference_of
from rrgtrain.engine.update import _forward
from rrgtrain.policy.load import load_policy
from rrgtrain.policy.lora import add_lora
from rrgtrain.policy.policy import Policy
from rrgtrain.schema import Lora
from tests.rrgtrain.engine.common import groups_of
from tests.rrgtrain.policy.common import REPORTS, tiny_policy

TEXTS = [[REPORTS[0], "Clear."], [REPORTS[3]]]


def logps(policy: Policy) -> torch.Tensor:
    with torch.no_grad():
        return _forward(policy, groups_of(policy, TEXTS, edited=False), 1.0)[0]


def reference_logps(reference: Policy) -> torch.Tensor:
    with computing(reference):
        return logps(reference)


def disturb(policy: Policy) -> None:
    """Training that changes everything that trains."""
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))


def adapted(*, learned: bool, dropout: float = 0.0) -> Policy:
    policy = tiny_policy()
    add_lora(policy, Lora(rank=4, alpha=8.0, dropout=dropout), 0)
    if learned:
        disturb(policy)
    return policy


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[torch.nn.Module]:
    made: list[torch.nn.Module] = []
    real = copy.deepcopy

    def counted(value: object, *rest: object) -> object:
        if isinstance(value, torch.nn.Module):
            made.append(value)
        return real(value, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(reference_module.copy, "deepcopy", counted)
    return made


def test_full_training_compares_with_a_copy(copies: list) -> None:
    policy = tiny_policy()
    start = logps(policy)
    reference = reference_of(policy)
    assert copies == [policy.model]
    assert not any(p.requires_grad for p in reference.model.parameters())
    disturb(policy)
    assert torch.equal(reference_logps(reference), start)
    assert not torch.allclose(logps(policy), start)


def test_weights_that_do_not_train_are_shared() -> None:
    policy = tiny_policy(freeze_vision=True)
    start = logps(policy)
    reference = reference_of(policy)
    own = dict(policy.model.named_parameters())
    for name, parameter in reference.model.named_parameters():
        assert (parameter is own[name]) == ("visual" in name), name
    disturb(policy)
    assert torch.equal(reference_logps(reference), start)
    assert any(p.requires_grad for p in policy.model.parameters())


def test_a_fresh_adapter_compares_with_its_base(copies: list) -> None:
    policy = adapted(learned=False)
    start = logps(policy)
    before = {n for n, _ in policy.model.named_parameters()}
    reference = reference_of(policy)
    assert copies == [] and reference.model is policy.model
    assert {n for n, _ in policy.model.named_parameters()} == before, "no second adapter"
    disturb(policy)
    assert not torch.allclose(logps(policy), start)
    assert torch.equal(reference_logps(reference), logps(tiny_policy()))
    torch.testing.assert_close(reference_logps(reference), start, rtol=1e-5, atol=1e-5)


def test_an_adapter_that_has_learned_compares_with_what_it_was(
    copies: list, tmp_path: Path
) -> None:
    policy = adapted(learned=True)
    trained = {n for n, p in policy.model.named_parameters() if p.requires_grad}
    start, base = logps(policy), logps(tiny_policy())
    assert not torch.allclose(start, base)
    reference = reference_of(policy)
    assert copies == []
    disturb(policy)
    changed = logps(policy)
    assert torch.equal(reference_logps(reference), start)
    assert torch.equal(logps(policy), changed), "the policy's own adapter is back"
    assert {n for n, p in policy.model.named_parameters() if p.requires_grad} == trained
    reference.release()
    assert isinstance(policy.model, PeftModel) and START not in policy.model.peft_config
    assert torch.equal(logps(policy), changed)
    policy.save(tmp_path)
    assert (
        torch.equal(logps(load_policy(tmp_path)), changed) or (tmp_path / START).exists() is False
    )


def test_the_reference_has_no_dropout_and_takes_no_gradient_away() -> None:
    policy = adapted(learned=True, dropout=0.5)
    reference = reference_of(policy)
    policy.model.train()
    groups = groups_of(policy, TEXTS, edited=False)
    assert torch.equal(reference_logps(reference), reference_logps(reference))
    assert policy.model.training
    policy.model.eval()
    gradients = []
    for between in (False, True):
        out = _forward(policy, groups, 1.0)[0]
        if between:
            reference_logps(reference)
        out.sum().backward()
        found = {
            n: p.grad.clone() for n, p in policy.model.named_parameters() if p.grad is not None
        }
        gradients.append(found)
        policy.model.zero_grad(set_to_none=True)
    assert gradients[0] and set(gradients[0]) == set(gradients[1])
    assert all(torch.equal(g, gradients[1][n]) for n, g in gradients[0].items())
