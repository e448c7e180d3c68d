"""An adapter goes to vLLM merged; what trains beside it goes too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors import safe_open

from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.rollout import SamplingRequest, VllmEngine, VllmServerEngine, generate
from rrgpolicy.settings import LoraSettings
from rrgtrain.train.reference import reference_of
from tests.rrgpolicy.model.common import prompt, tiny_directory
from tests.rrgpolicy.rollout import stub_vllm
from tests.rrgpolicy.rollout.served import CHAT, WORKERS, Served


@pytest.fixture
def served() -> Iterator[Served]:
    with Served(tiny_directory()) as made:
        yield made


def adapted() -> Policy:
    policy = load_policy(tiny_directory(), freeze_vision=True)
    add_lora(policy, LoraSettings(rank=2), 0)
    grow(policy)
    return policy


def grow(policy: Policy) -> None:
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))


def request(policy: Policy) -> SamplingRequest:
    prompts = [prompt(policy, "s", 1), prompt(policy, "ss", 0)]
    return SamplingRequest(prompts, group=2, max_new_tokens=8, seeds=[[1, 2], [3, 4]], greedy=True)


def ids(engine: VllmServerEngine | None, policy: Policy) -> list[list[list[int]]]:
    sampled = generate if engine is None else engine.generate
    return [[r.ids.tolist() for r in group] for group in sampled(policy, request(policy))]


def test_a_server_has_the_adapter_of_each_step_and_the_base_once(served, tmp_path):
    policy = adapted()
    engine, found = VllmServerEngine(served.url, tmp_path, wait=20.0), []
    for step in (0, 1):
        engine.update(policy, step)
        found.append(ids(engine, policy))
        assert found[-1] == ids(None, policy)
        grow(policy)
    assert found[0] != found[1]
    with safe_open(tmp_path / "trained.safetensors", "pt") as file:
        assert all(".layers." in name for name in file.keys())  # noqa: SIM118
    # the start; whole and report; what trains and report
    assert served.asked[WORKERS] == 1 + 2 + 2


def test_the_adapter_of_a_reference_is_not_pushed(served: Served, tmp_path: Path) -> None:
    """It lies beside the policy's own where the start had learned something."""
    policy, plain = adapted(), adapted()
    engine = VllmServerEngine(served.url, tmp_path / "plain", wait=20.0)
    alone = engine.update(plain, 0)
    reference = reference_of(policy)
    assert any("rrgtrain_start" in name for name, _ in policy.model.named_parameters())
    pushed = VllmServerEngine(served.url, tmp_path / "two", wait=20.0).update(policy, 0)
    assert alone is not None and pushed is not None and pushed.digest == alone.digest
    reference.release()


@pytest.mark.parametrize("dies", [[(CHAT, 1)], [(WORKERS, 4)]], ids=str)
def test_a_server_that_starts_anew_between_two_pushes_gets_base_and_adapter(dies, served, tmp_path):
    policy = adapted()
    with torch.no_grad():
        policy.language_model.layers[0].mlp.up_proj.base_layer.weight.mul_(-2)
    engine = VllmServerEngine(served.url, tmp_path, wait=20.0)
    engine.update(policy, 0)
    ids(engine, policy)
    grow(policy)
    served.back = 0.2
    if dies == [(CHAT, 1)]:
        served.stop()  # unseen, before the second push
        served.start()
        dies = []
    served.dies = dies.copy()
    engine.update(policy, 1)
    assert ids(engine, policy) == ids(None, policy)
    assert served.dies == [] and served.lives > 1


def test_what_trains_beside_an_adapter_is_pushed_too(tmp_path, monkeypatch):
    """A loaded policy may train its head or a norm beside the adapter."""
    stub_vllm.install(monkeypatch)
    policy = adapted()
    norm = policy.language_model.norm.weight
    norm.requires_grad_(True)
    engine = VllmEngine(policy, tmp_path, max_model_len=512)
    for step in (0, 1):
        engine.update(policy, step)
        own = dict(engine._llm.worker.policy.language_model.named_parameters())
        torch.testing.assert_close(own["norm.weight"], norm)
        with torch.no_grad():
            norm.mul_(1.5)


def test_another_model_is_pushed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub_vllm.install(monkeypatch)
    policy, other = adapted(), adapted()
    engine = VllmEngine(policy, tmp_path, max_model_len=512)
    engine.update(policy, 0)
    with torch.no_grad():
        other.language_model.norm.weight.mul_(1.5)
    engine.update(other, 1)
    own = dict(engine._llm.worker.policy.language_model.named_parameters())
    torch.testing.assert_close(own["norm.weight"], other.language_model.norm.weight)


def test_an_adapter_that_has_changed_the_base_is_sent_with_that_base(served, tmp_path):
    policy = load_policy(tiny_directory())
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights="pissa")
    policy.model = get_peft_model(policy.model, config)
    engine = VllmServerEngine(served.url, tmp_path, wait=20.0)
    engine.update(policy, 0)
    assert ids(engine, policy) == ids(None, policy)
