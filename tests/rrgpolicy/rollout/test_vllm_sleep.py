"""The calls that vLLM in process gets around an update, on a stub: nothing of it ran on a GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rrgclinical.common.errors import UserError
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.rollout import SamplingRequest, VllmEngine, generate, sampling
from rrgpolicy.settings import LoraSettings
from tests.rrgpolicy.model.common import prompt, tiny_directory, tiny_policy
from tests.rrgpolicy.rollout import stub_vllm


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
    stub_vllm.install(monkeypatch)
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


def test_a_base_that_does_not_train_sleeps_in_host_memory_and_is_pushed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = load_policy(tiny_directory())
    add_lora(policy, LoraSettings(rank=2), 0)
    engine = sleeping(policy, tmp_path, monkeypatch)
    for step in (0, 0, 1):
        with sampling(engine, policy, step):
            engine.generate(policy, request(policy))
    told = calls(engine)
    assert [c for c in told if c.startswith(("take", "sleep"))] == [
        *("take_weights", "take_adapter", "sleep 1", "sleep 1", "take_adapter", "sleep 1")
    ]


@pytest.mark.parametrize("fails", ["take_weights", "generate"])
def test_an_engine_that_fails_is_named_and_the_next_call_wakes_it(
    engine: VllmEngine, fails: str
) -> None:
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
