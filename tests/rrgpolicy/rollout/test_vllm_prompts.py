"""The engine in process sends prompts and updates to a stub of vLLM."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from rrgclinical.common.errors import UserError
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.rollout import (
    RolloutEngine,
    SamplingRequest,
    VllmEngine,
    VllmServerEngine,
    checkpoint_tensors,
    generate,
    sampling,
)
from rrgpolicy.rollout.engines import build_engine
from rrgpolicy.rollout.vllm_prompts import rollout, sampling_arguments
from rrgpolicy.settings import LoraSettings
from rrgtrain.run.export import export_checkpoint
from rrgtrain.train.reference import reference_of
from tests.rrgpolicy.model.common import grow, prompt, text_directory, tiny_directory, tiny_policy
from tests.rrgpolicy.model.test_strangers import model_of
from tests.rrgpolicy.rollout.served import Served, in_process, over_http, stub_vllm
from tests.rrgtrain.common import recipe
from tests.rrgtrain.train.test_reference import logps, reference_logps

PUSHES = 10


@pytest.mark.parametrize("engine_of", [in_process, over_http])
def test_pushes_leave_the_base_and_the_reference_as_their_file(engine_of, tmp_path, monkeypatch):
    """Push, and compare base, adapter and reference with what they were."""
    policy = load_policy(tiny_directory(), dtype=torch.bfloat16)
    add_lora(policy, LoraSettings(rank=4, alpha=8.0), seed=0)
    reference = reference_of(policy)
    engine: RolloutEngine
    with engine_of(policy, tmp_path, monkeypatch) as engine:
        for step in range(PUSHES):
            grow(policy, 0.003, step)
            own = {n: p.clone() for n, p in policy.model.named_parameters() if "lora_" in n}
            engine.update(policy)
    now = policy.backbone.state_dict()
    start = load_policy(tiny_directory(), dtype=torch.bfloat16)
    for name, value in start.backbone.state_dict().items():
        layer, _, last = name.rpartition(".")
        kept = now[name] if name in now else now[f"{layer}.base_layer.{last}"]
        assert torch.equal(kept, value), name
    parameters = dict(policy.model.named_parameters())
    assert all(torch.equal(parameters[name], value) for name, value in own.items())
    assert torch.equal(reference_logps(reference), logps(start))
    assert not torch.equal(logps(policy), logps(start)), "the adapter has learned something"


@pytest.mark.parametrize(
    "options",
    [
        {"target_modules": ["q_proj", "down_proj"]},
        {"target_modules": ["k_proj", "up_proj"], "rank_pattern": {"k_proj": 2}, "lora_alpha": 3},
        {"target_modules": ["v_proj"], "lora_bias": True},
        {"target_modules": ["o_proj", "gate_proj"], "use_dora": True},
    ],
    ids=["plain", "ranks", "bias", "dora"],
)
def test_the_merged_copy_samples_as_the_adapter(options: dict, tmp_path: Path) -> None:
    policy, plain = tiny_policy(), tiny_policy()
    torch.manual_seed(0)
    config = LoraConfig(r=4, init_lora_weights=False, lora_dropout=0.5, **options)
    policy.model = get_peft_model(policy.model, config).train()
    merged = checkpoint_tensors(policy)
    start = logps(plain)
    missing = plain.backbone.load_state_dict(merged, strict=False)
    assert (missing.missing_keys, missing.unexpected_keys) == (["lm_head.weight"], [])
    policy.model.eval()
    torch.testing.assert_close(logps(plain), logps(policy), rtol=1e-4, atol=1e-4)
    assert (logps(plain) - start).abs().max() > 0.1


def test_the_merge_rounds_once() -> None:
    policy = load_policy(tiny_directory(), dtype=torch.bfloat16)
    add_lora(policy, LoraSettings(rank=4, alpha=8.0), seed=0)
    for step in range(30):
        grow(policy, 0.003, step)
    layer = policy.language_model.layers[0].mlp.up_proj
    exact = layer.base_layer.weight.double() + layer.get_delta_weight("default").double()
    name = "model.language_model.layers.0.mlp.up_proj.weight"
    found = checkpoint_tensors(policy)
    half = (exact.bfloat16().double() - exact).abs() + 1e-9
    assert ((found[name].double() - exact).abs() <= half).all()
    kept = "model.language_model.norm.weight"
    own = policy.language_model.norm.weight
    assert found[kept].data_ptr() == own.data_ptr(), "what is not adapted is not copied"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"target_modules": ["q_proj"], "modules_to_save": ["norm"]}, "copy of .*norm, which"),
        ({"target_modules": ["embed_tokens"]}, "same weight: .*embed_tokens, which .*; use"),
    ],
)
def test_an_adapter_that_no_merge_holds_is_refused(options, line: str, tmp_path: Path) -> None:
    policy = tiny_policy()
    policy.model = get_peft_model(policy.model, LoraConfig(r=2, **options))
    with pytest.raises(UserError, match=line):
        checkpoint_tensors(policy)
    # before ranks push, where an error of one rank could not be told
    with pytest.raises(UserError, match=line):
        build_engine(recipe("rollout.engine=vllm"), policy, tmp_path)


def test_a_head_that_is_the_embedding_is_known_whatever_its_name(tmp_path: Path) -> None:
    base = Path(shutil.copytree(text_directory(), tmp_path / "base"))
    like = load_policy(base)
    sizes: dict[str, Any] = {"vocab_size": like.embedding_shape[0], "tie_word_embeddings": True}
    sizes |= {"eos_token_id": like.end_of_turn, "bos_token_id": None, "pad_token_id": None}
    model_of("GPTNeoXJapanese", **sizes).save_pretrained(base)
    policy = load_policy(base)
    left_out = policy.backbone.state_dict().keys() - checkpoint_tensors(policy).keys()
    assert left_out == {"embed_out.weight"}
    policy.model = get_peft_model(policy.model, LoraConfig(r=2, target_modules=["embed_in"]))
    policy.save(tmp_path / "adapter")
    with pytest.raises(UserError, match="adapts gpt_neox_japanese.embed_in, and the head of"):
        export_checkpoint(str(tmp_path / "adapter"), tmp_path / "merged", merge=True)


class Listening(Served):
    """Keeps what it is asked."""

    def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        self.body = body
        return super()._complete(body)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, {"temperature": 1.0, "top_p": 1.0}),
        ({"temperature": 0.7, "top_p": 0.9}, {"temperature": 0.7, "top_p": 0.9}),
        ({"greedy": True, "temperature": 0.7}, {"temperature": 0.0, "top_p": 1.0}),
    ],
)
def test_no_default_of_a_server_or_a_checkpoint_is_left_to_act(options, said, tmp_path):
    """In process the same arguments go into vLLM's record, as `tests/vllm` has it."""
    policy = tiny_policy()
    wanted: dict[str, Any] = {
        **said,
        **{"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},
        **{"presence_penalty": 0.0, "frequency_penalty": 0.0},
        "logit_bias": dict.fromkeys(policy.never_sampled, -100.0),
    }
    request = SamplingRequest(
        [prompt(policy, "s", 1)], group=2, max_new_tokens=4, seeds=[[1, 2]], **options
    )
    arguments = sampling_arguments(policy, request, 1)
    assert {name: arguments[name] for name in wanted} == wanted
    with Listening(tiny_directory()) as served:
        engine = VllmServerEngine(served.url, tmp_path)
        engine.update(policy)
        engine.generate(policy, request)
    heard = {name: served.body[name] for name in wanted}
    heard["logit_bias"] = {int(token): value for token, value in heard["logit_bias"].items()}
    assert heard == wanted
    ids = [policy.never_sampled[0], policy.end_of_turn]
    with pytest.raises(UserError, match=r"vLLM sampled <\|.*\|>, which the trainer forbids"):
        rollout(policy, request, 0, None, ids, [0.0, 0.0])


class Sleeper:
    """The stub's LLM with an engine's states; it fails where a sleeping part is used."""

    def __init__(self, policy: Policy, llm: Any) -> None:
        self.policy, self.llm, self.calls = policy, llm, list[str]()
        self.llm_engine = llm.llm_engine
        self.awake = {"weights", "kv_cache"}
        self.fails: str | None = None

    def sleep(self, level: int) -> None:
        assert "weights" in self.awake, "put to sleep twice"
        self.awake, _ = set(), self.calls.append(f"sleep {level}")

    def wake_up(self, tags: list[str]) -> None:
        assert not self.awake & set(tags), "woken twice"
        self.awake |= set(tags)
        self.calls.append(f"wake {' '.join(tags)}")

    def collective_rpc(self, method: str, kwargs: dict[str, Any] | None = None) -> list[Any]:
        assert "weights" in self.awake
        if method != "weights_taken":
            self.calls.append(method)
        if self.fails == method:
            raise RuntimeError("CUDA error: out of memory\nmore")
        return self.llm.collective_rpc(method, kwargs)

    def reset_prefix_cache(self) -> None:
        pass

    def generate(self, inputs: list[Any], parameters: list[Any], **_: Any) -> list[Any]:
        assert self.awake == {"weights", "kv_cache"}, "sampled while asleep"
        self.calls.append("generate")
        if self.fails == "generate":
            raise RuntimeError("EngineCore died")
        (group,) = generate(self.policy, request(self.policy))
        return [
            SimpleNamespace(
                prompt_token_ids=None,
                outputs=[
                    SimpleNamespace(
                        token_ids=made.ids.tolist(),
                        logprobs=[
                            {i: SimpleNamespace(logprob=value)}
                            for i, value in zip(made.ids.tolist(), made.logps.tolist(), strict=True)
                        ],
                    )
                ],
            )
            for made in group
        ]


def request(policy: Policy) -> SamplingRequest:
    return SamplingRequest([prompt(policy, "s", 0)], group=2, max_new_tokens=3, seeds=[[1, 2]])


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VllmEngine:
    return sleeping(tiny_policy(), tmp_path, monkeypatch)


def sleeping(policy: Policy, work: Path, monkeypatch: pytest.MonkeyPatch) -> VllmEngine:
    stub_vllm(monkeypatch)
    made = VllmEngine(policy, work, max_model_len=512)
    made._llm, made._sleeps = Sleeper(policy, made._llm), True
    return made


def calls(engine: VllmEngine) -> list[str]:
    made: list[str] = engine._llm.calls
    done = made.copy()
    made.clear()
    return done


def test_weights_wake_for_the_push_and_the_cache_after_it(engine: VllmEngine) -> None:
    policy = engine._llm.policy
    for step, woken in ((0, False), (1, True)):
        with sampling(engine, policy, step):
            for _ in range(2):
                engine.generate(policy, request(policy))
        wanted = ["take_weights", "generate", "generate", "sleep 2"]
        if woken:
            wanted[0:1] = ["wake weights", "take_weights", "wake kv_cache"]
        assert calls(engine) == wanted


def test_a_rank_without_prompts_puts_its_weights_to_sleep_again(engine: VllmEngine) -> None:
    for step in range(3):
        with sampling(engine, engine._llm.policy, step):
            pass
        assert not engine._llm.awake
    assert calls(engine)[1:5] == ["sleep 2", "wake weights", "take_weights", "sleep 2"]


def test_what_was_thrown_away_is_pushed_again(engine: VllmEngine) -> None:
    """Validation and rollout of a step: level 2 keeps no weights."""
    policy = engine._llm.policy
    for _ in range(2):
        with sampling(engine, policy, 4):
            engine.generate(policy, request(policy))
    assert calls(engine).count("take_weights") == 2


def test_a_base_that_does_not_train_sleeps_in_host_memory_and_is_pushed_once(tmp_path, monkeypatch):
    policy = load_policy(tiny_directory())
    add_lora(policy, LoraSettings(rank=2), 0)
    engine = sleeping(policy, tmp_path, monkeypatch)
    for step in (0, 0, 1):
        with sampling(engine, policy, step):
            engine.generate(policy, request(policy))
    told = calls(engine)
    assert [c for c in told if c.startswith(("take", "sleep"))] == [
        *("take_weights", "sleep 1", "sleep 1", "take_weights", "sleep 1")
    ]


@pytest.mark.parametrize("fails", ["take_weights", "generate"])
def test_an_engine_that_fails_is_named_and_the_next_call_wakes_it(engine, fails):
    policy = engine._llm.policy
    with sampling(engine, policy, 0):
        engine.generate(policy, request(policy))
    engine._llm.fails = fails
    named = "vLLM in this process failed at step 1 .RuntimeError: (CUDA error: out|EngineCore died)"
    with pytest.raises(UserError, match=named) as caught, sampling(engine, policy, 1):
        engine.generate(policy, request(policy))
    assert "\n" not in str(caught.value) and "then resume" in str(caught.value)
    engine._llm.fails = None
    calls(engine)
    with sampling(engine, policy, 1):
        engine.generate(policy, request(policy))
    assert calls(engine)[-2:] == ["generate", "sleep 2"]
