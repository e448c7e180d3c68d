"""An adapter sent to vLLM as one: a server loads it by itself; what trains beside it goes too."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from rrgclinical.common.errors import UserError
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.rollout import SamplingRequest, VllmEngine, VllmServerEngine, generate
from rrgpolicy.settings import LoraSettings
from rrgtrain.train.reference import reference_of
from tests.rrgpolicy.model.common import prompt, tiny_directory
from tests.rrgpolicy.rollout import stub_vllm
from tests.rrgpolicy.rollout.served import CHAT, LOAD, WORKERS, Served, Worker


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served(tiny_directory())
    made.adapters = True
    with made:
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


def test_a_server_loads_the_adapter_of_each_step_and_the_base_once(
    served: Served, tmp_path: Path
) -> None:
    policy = adapted()
    engine, found = VllmServerEngine(served.url, tmp_path, wait=20.0), []
    for step in (0, 1):
        pushed = engine.update(policy, step)
        assert pushed is not None and served.loaded.keys() == {f"rrgpolicy-{pushed.digest}"}
        found.append(ids(engine, policy))
        assert found[-1] == ids(None, policy)
        grow(policy)
    assert found[0] != found[1]
    assert not (tmp_path / "trained.safetensors").exists()
    # whole, adapter and report; adapter and report
    assert served.asked[WORKERS] == 1 + 3 + 2


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


@pytest.mark.parametrize(
    "dies", [[(CHAT, 1)], [(LOAD, 2)], [(WORKERS, 5)], [("/v1/models", 2)]], ids=str
)
def test_a_server_that_starts_anew_between_two_pushes_gets_base_and_adapter(
    dies: list, served: Served, tmp_path: Path
) -> None:
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


def test_an_adapter_that_another_rank_or_run_has_loaded_serves(
    served: Served, tmp_path: Path
) -> None:
    policy = adapted()
    for part in ("a", "b"):
        engine = VllmServerEngine(served.url, tmp_path / part, wait=20.0)
        engine.update(policy, 0)
        assert ids(engine, policy) == ids(None, policy)
    assert len(served.loaded) == 1


def test_a_server_without_adapters_gets_it_merged_and_that_is_told(tmp_path: Path) -> None:
    policy = adapted()
    with Served(tiny_directory()) as served:
        engine = VllmServerEngine(served.url, tmp_path, wait=20.0)
        with pytest.warns(
            UserWarning, match="takes no adapters: .*--enable-lora --max-lora-rank 8"
        ):
            engine.update(policy, 0)
        assert ids(engine, policy) == ids(None, policy)
        assert served.loaded == {}


def test_an_adapter_that_the_server_refuses_is_told_at_once(served: Served, tmp_path: Path) -> None:
    engine = VllmServerEngine(served.url, tmp_path, wait=600.0)
    served.says = {LOAD: [500]}
    with pytest.raises(UserError, match="does not load the adapter .*said so.*--max-lora-rank"):
        engine.update(adapted(), 0)


def test_merged_where_the_recipe_says_so(served: Served, tmp_path: Path) -> None:
    policy = adapted()
    engine = VllmServerEngine(served.url, tmp_path, wait=20.0, adapter=False)
    engine.update(policy, 0)
    assert ids(engine, policy) == ids(None, policy)
    assert served.loaded == {}


def test_what_trains_beside_an_adapter_is_pushed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize("targets", [["q_proj", "lm_head"], ["q_proj", "embed_tokens"]], ids=str)
def test_an_adapter_of_embeddings_or_head_is_merged(
    targets: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub_vllm.install(monkeypatch)
    policy = load_policy(tiny_directory())
    policy.model = get_peft_model(policy.model, LoraConfig(r=2, target_modules=targets))
    with pytest.warns(UserWarning, match="a part outside the decoder's layers: it is merged"):
        assert not VllmEngine(policy, tmp_path, max_model_len=512)._lora


def test_an_adapter_that_has_changed_the_base_is_sent_with_that_base(
    served: Served, tmp_path: Path
) -> None:
    policy = load_policy(tiny_directory())
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights="pissa")
    policy.model = get_peft_model(policy.model, config)
    engine = VllmServerEngine(served.url, tmp_path, wait=20.0)
    engine.update(policy, 0)
    written = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert written["init_lora_weights"] is True
    assert ids(engine, policy) == ids(None, policy)


class Lost(Worker):
    """Keeps the first adapter that it is given, and says that it has taken each."""

    def _load_adapter(self, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
        if not hasattr(self.policy.backbone, "lora_a_stacked"):
            super()._load_adapter(tensors, config)


class LostServed(Served):
    """A server that does so."""

    def _change_adapters(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        first = getattr(self.policy.backbone, "lora_a_stacked", None)
        answer = super()._change_adapters(path, body)
        if first is not None:
            self.policy.backbone.lora_a_stacked = first  # type: ignore[assignment]
        return answer


@contextmanager
def in_process(policy: Policy, work: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator:
    stub_vllm.install(monkeypatch)
    monkeypatch.setattr(stub_vllm, "Worker", Lost)
    yield VllmEngine(policy, work, max_model_len=512)


@contextmanager
def over_http(policy: Policy, work: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator:
    served = LostServed(tiny_directory())
    served.adapters = True
    with served:
        yield VllmServerEngine(served.url, work, wait=20.0)


@pytest.mark.parametrize("engine_of", [in_process, over_http])
def test_an_adapter_that_never_arrives_stops_the_push(
    engine_of: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = adapted()
    with engine_of(policy, tmp_path, monkeypatch) as engine:
        engine.update(policy, 0)
        grow(policy)
        with pytest.raises(UserError, match="weights of step 1 and computes with those of step 0"):
            engine.update(policy, 1)
