"""The reference: its log-probabilities are the start's, and it costs no more than it must."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from rrgpolicy.model.load import load_policy
from rrgpolicy.model.own_forward import VisionCache
from rrgpolicy.model.policy import Policy, add_lora
from rrgtrain.errors import UserError
from rrgtrain.schema import LoraSettings
from rrgtrain.state.remembered import FILE, base_of, to_remember
from rrgtrain.train import reference as reference_module
from rrgtrain.train import save_policy
from rrgtrain.train.gradients import _forward
from rrgtrain.train.reference import check_reference, computing, named_reference, reference_of
from tests.rrgpolicy.model.common import REPORTS, grow, text_policy, tiny_policy
from tests.rrgtrain.common import groups_of, recipe

TEXTS = [[REPORTS[0], "Clear."], [REPORTS[3]]]


def logps(policy: Policy) -> torch.Tensor:
    with torch.no_grad():
        return _forward(policy, groups_of(policy, TEXTS, edited=False), 1.0)[0]


def reference_logps(reference: Policy) -> torch.Tensor:
    with computing(reference):
        return logps(reference)


def adapted(*, learned: bool, dropout: float = 0.0) -> Policy:
    policy = tiny_policy()
    add_lora(policy, LoraSettings(rank=4, alpha=8.0, dropout=dropout), 0)
    if learned:
        grow(policy, 0.05)
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
    grow(policy, 0.05)
    assert torch.equal(reference_logps(reference), start)
    assert not torch.allclose(logps(policy), start)


def test_weights_that_do_not_train_are_shared() -> None:
    policy = tiny_policy(freeze_vision=True)
    start = logps(policy)
    reference = reference_of(policy)
    own = dict(policy.model.named_parameters())
    for name, parameter in reference.model.named_parameters():
        assert (parameter is own[name]) == ("visual" in name), name
    grow(policy, 0.05)
    assert torch.equal(reference_logps(reference), start)
    assert any(p.requires_grad for p in policy.model.parameters())


def test_a_fresh_adapter_compares_with_its_base(copies: list) -> None:
    policy = adapted(learned=False)
    start = logps(policy)
    before = {n for n, _ in policy.model.named_parameters()}
    reference = reference_of(policy)
    assert copies == [] and reference.model is policy.model
    assert {n for n, _ in policy.model.named_parameters()} == before, "no second adapter"
    grow(policy, 0.05)
    assert not torch.allclose(logps(policy), start)
    assert torch.equal(reference_logps(reference), logps(tiny_policy()))
    torch.testing.assert_close(reference_logps(reference), start, rtol=1e-5, atol=1e-5)


def test_an_adapter_that_has_learned_compares_with_what_it_was(copies, tmp_path):
    policy = adapted(learned=True)
    trained = {n for n, p in policy.model.named_parameters() if p.requires_grad}
    start, base = logps(policy), logps(tiny_policy())
    assert not torch.allclose(start, base)
    reference = reference_of(policy)
    assert copies == []
    grow(policy, 0.05)
    changed = logps(policy)
    assert torch.equal(reference_logps(reference), start)
    assert torch.equal(logps(policy), changed), "the policy's own adapter is back"
    assert {n for n, p in policy.model.named_parameters() if p.requires_grad} == trained
    reference.release()
    assert isinstance(policy.model, PeftModel)
    assert reference_module.START not in policy.model.peft_config
    assert torch.equal(logps(policy), changed)
    policy.save(tmp_path)
    assert not (tmp_path / reference_module.START).exists()


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
        named = policy.model.named_parameters()
        gradients.append({n: p.grad.clone() for n, p in named if p.grad is not None})
        policy.model.zero_grad(set_to_none=True)
    assert gradients[0] and set(gradients[0]) == set(gradients[1])
    assert all(torch.equal(g, gradients[1][n]) for n, g in gradients[0].items())


def run_of(home: Path, policy: Policy, path: str) -> Path:
    """A run that has trained `policy` from `path` and left a checkpoint."""
    out = home / "checkpoints" / "sft"
    save_policy(policy, out, to_remember(recipe(f"policy.path={path}"), home))
    return out


@pytest.fixture
def tuned(tmp_path: Path) -> Policy:
    """A policy that has been trained from <tmp_path>/model."""
    policy = tiny_policy()
    policy.save(tmp_path / "model")
    grow(policy, 0.05)
    return policy


def test_base_is_what_fine_tuning_started_from(tuned: Policy, tmp_path: Path) -> None:
    """Through any number of trainings, and for a run that began with the tiny policy."""
    first = run_of(tmp_path / "a", tuned, str(tmp_path / "model"))
    second = run_of(tmp_path / "b", tuned, str(first))
    policy = load_policy(second)
    start, base = logps(policy), logps(load_policy(tmp_path / "model"))
    for asked, path in (("base", second), (str(tmp_path / "model"), second), ("base", first)):
        cfg = recipe(f"policy.path={path}", f"rl.reference={asked}")
        check_reference(cfg.rl.reference, cfg.policy.path, tmp_path / "c")
        reference = named_reference(policy, cfg.rl.reference, cfg.policy, tmp_path / "c")
        torch.testing.assert_close(reference_logps(reference), base)
        assert not any(p.requires_grad for p in reference.model.parameters())
        assert not torch.allclose(reference_logps(reference), start)
    own = named_reference(policy, "start", recipe().policy, tmp_path / "c")
    grow(policy, 0.05)
    assert torch.equal(reference_logps(own), start)
    third = run_of(tmp_path / "demo", tuned, "tiny")
    assert base_of(str(third), tmp_path) == str(tmp_path / "demo" / "init")
    assert base_of("tiny", tmp_path / "demo") == str(tmp_path / "demo" / "init")
    assert base_of("Qwen/Qwen2.5-VL-3B-Instruct", tmp_path) == "Qwen/Qwen2.5-VL-3B-Instruct"


def test_the_base_of_an_adapter_is_the_adapter_off(tmp_path: Path) -> None:
    tiny_policy().save(tmp_path / "model")
    policy = load_policy(tmp_path / "model")
    add_lora(policy, LoraSettings(rank=4, alpha=8.0), 0)
    grow(policy, 0.05)
    first = run_of(tmp_path / "a", policy, str(tmp_path / "model"))
    loaded = load_policy(first)
    loaded.model.requires_grad_(False)
    for name, parameter in loaded.model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    start = recipe(f"policy.path={first}").policy
    reference = named_reference(loaded, "base", start, tmp_path / "b")
    assert reference.model is loaded.model
    wanted = logps(load_policy(tmp_path / "model"))
    torch.testing.assert_close(reference_logps(reference), wanted)
    assert not torch.allclose(logps(loaded), wanted)


def test_an_adapter_that_has_changed_the_base(tuned: Policy, tmp_path: Path) -> None:
    policy = load_policy(tmp_path / "model")
    base, config = logps(policy), LoraConfig(target_modules=["q_proj"], init_lora_weights="pissa")
    policy.model = get_peft_model(policy.model, config)
    start = recipe(f"policy.path={run_of(tmp_path / 'a', policy, str(tmp_path / 'model'))}").policy
    references = (named_reference(policy, "base", start, tmp_path / "b"), reference_of(policy))
    for compared in (logps(policy), *map(reference_logps, references)):
        torch.testing.assert_close(compared, base, rtol=1e-4, atol=1e-4)


def test_an_adapter_on_fine_tuned_weights_has_their_base(tuned: Policy, tmp_path: Path) -> None:
    """The adapter off is the start there, not the base."""
    first = run_of(tmp_path / "a", tuned, str(tmp_path / "model"))
    policy = load_policy(first)
    add_lora(policy, LoraSettings(rank=4, alpha=8.0), 0)
    start = recipe(f"policy.path={first}").policy
    reference = named_reference(policy, "base", start, tmp_path / "b")
    assert reference.model is not policy.model
    wanted = logps(load_policy(tmp_path / "model"))
    torch.testing.assert_close(reference_logps(reference), wanted)


def test_a_reference_that_cannot_be(tmp_path: Path) -> None:
    first = run_of(tmp_path / "a", tiny_policy(), "tiny")
    (first / FILE).write_text("{}")
    told = f"nothing in {first} says what it was trained from; name that checkpoint"
    with pytest.raises(UserError, match=told):
        check_reference("base", str(first), tmp_path)
    second = run_of(tmp_path / "b", tiny_policy(), str(first))  # training on is no error
    with pytest.raises(UserError, match=f"nothing in {second} says"):
        base_of(str(second), tmp_path)
    with pytest.raises(UserError, match="no such directory: ./nothing"):
        check_reference("./nothing", "tiny", tmp_path)
    text_policy().save(tmp_path / "text")
    with pytest.raises(UserError, match="has another vocabulary or input than the policy"):
        named_reference(tiny_policy(), str(tmp_path / "text"), recipe().policy, tmp_path)


def test_another_checkpoint_sees_with_its_own_tower(tuned: Policy, tmp_path: Path) -> None:
    """What the policy's frozen tower has embedded is kept for the policy alone."""
    tuned.save(tmp_path / "tuned")
    policy = load_policy(tmp_path / "tuned", freeze_vision=True)
    own, others = logps(policy), logps(load_policy(tmp_path / "model"))
    policy.vision_cache = VisionCache(1 << 20)
    start = recipe(f"policy.path={tmp_path / 'tuned'}").policy
    reference = named_reference(policy, str(tmp_path / "model"), start, tmp_path)
    for _ in range(2):
        torch.testing.assert_close(reference_logps(reference), others)
        torch.testing.assert_close(logps(policy), own)
