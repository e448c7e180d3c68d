"""The client of a vLLM server: what it asks for, when the server goes away, with an adapter."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors import safe_open

from rrgclinical.common.errors import Stopped, UserError
from rrgclinical.common.stop import stopping
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.model.prompt import EncodedPrompt, encode_prompt
from rrgpolicy.rollout import Rollout, SamplingRequest, VllmServerEngine, generate
from rrgpolicy.rollout.vllm_prompts import rollout
from rrgpolicy.settings import LoraSettings
from rrgtrain.train.reference import reference_of
from tests.rrgpolicy.model.common import grow, prompt, study, tiny_directory, tiny_policy
from tests.rrgpolicy.rollout.served import CHAT, WORKERS, Served, in_process

SEEDS = [[11, 12, 13], [21, 22, 23], [31, 32, 33]]


@pytest.fixture
def served() -> Iterator[Served]:
    """Serve other weights than the policy's: those have to be pushed."""
    with Served(tiny_directory()) as made:
        yield made


@pytest.fixture
def policy() -> Policy:
    """It ends its turn now and then."""
    made = tiny_policy()
    made.eos_ids = tuple(range(40, 46))
    return made


def tokens(rollouts: list[list[Rollout]]) -> list[list[tuple[list[int], bool]]]:
    return [[(r.ids.tolist(), r.finished) for r in group] for group in rollouts]


def asked(policy: Policy, length: int, **options: Any) -> SamplingRequest:
    prompts = [prompt(policy, "s" * (b + 1), views) for b, views in enumerate((1, 0, 3))]
    return SamplingRequest(prompts, group=3, max_new_tokens=length, seeds=SEEDS, **options)


def client(served: Served, directory: Path, wait: float = 20.0) -> VllmServerEngine:
    return VllmServerEngine(served.url, directory, concurrency=4, wait=wait)


@pytest.mark.parametrize("length", [1, 2, 20])
@pytest.mark.parametrize(
    "options", [{"greedy": True}, {"temperature": 0.8}, {"top_p": 0.7}], ids=str
)
def test_stop_and_length_are_the_trainers_token_by_token(length, options, served, policy, tmp_path):
    engine = client(served, tmp_path)
    engine.update(policy)
    request = asked(policy, length, **options)
    theirs = engine.generate(policy, request)
    ours = generate(policy, request)
    assert tokens(theirs) == tokens(ours)
    assert served.asked.total() > 8
    assert served.connections <= 4, "as many as requests under way at a time: they are kept"
    if length == 20 and "greedy" not in options:
        ends = {r.finished for group in ours for r in group}
        assert ends == {True, False}, "both ways to end are looked at"
    for a, b in zip(chain(*theirs), chain(*ours), strict=True):
        if "temperature" in options or "top_p" in options:
            torch.testing.assert_close(a.logps, b.logps, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "dies",
    [
        [(CHAT, 1)],
        [(CHAT, 3)],
        [(WORKERS, 2)],
        [(WORKERS, 3)],
        [("/reset_prefix_cache", 2)],
        [(CHAT, 3), (CHAT, 2)],
    ],
    ids=str,
)
def test_a_server_that_comes_back_has_the_weights_again(dies, served, policy, tmp_path):
    engine = client(served, tmp_path)
    served.dies, served.back = dies.copy(), 0.3
    engine.update(policy)
    request = asked(policy, 8)
    found = engine.generate(policy, request)
    assert served.dies == [] and served.lives == 1 + 2 * len(dies)
    wanted = generate(policy, request)
    assert tokens(found) == tokens(wanted)
    start = replace(load_policy(tiny_directory()), eos_ids=policy.eos_ids)
    other = generate(start, request)
    assert tokens(other) != tokens(wanted), "the weights that it starts with would show"


def test_one_that_stays_away_is_waited_for_and_named(served, policy, tmp_path):
    engine = client(served, tmp_path, wait=0.5)
    engine.update(policy)
    served.dies = [(CHAT, 2)]
    with pytest.raises(UserError, match="no answer from vLLM at .*/health for 0.5 s .*and resume"):
        engine.generate(policy, asked(policy, 4))
    with pytest.raises(UserError, match="no answer from vLLM"):
        client(served, tmp_path, wait=0.3)
    served.start()


def test_a_signal_does_not_wait_for_it(served: Served, policy: Policy, tmp_path: Path) -> None:
    engine = client(served, tmp_path, wait=600.0)
    served.dies = [(CHAT, 2)]
    terminate = threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGTERM])
    with stopping.installed("rrgtrain"), stopping.deferred():
        terminate.start()
        with pytest.raises(Stopped, match="stopped by SIGTERM"):
            engine.generate(policy, asked(policy, 4))
    terminate.join()
    served.start()


def test_one_that_dies_of_every_batch_is_given_up(served, policy, tmp_path):
    engine = client(served, tmp_path)
    engine.update(policy)
    served.dies, served.back = [(CHAT, 1)] * 9, 0.2  # a late request meets the next life
    with pytest.raises(UserError, match="went away 3 times in one batch"):
        engine.generate(policy, asked(policy, 4))
    engine._patiently("/health", method="GET", starting=True)


def test_a_busy_server_is_asked_again_and_a_refusal_is_told(served, policy, tmp_path):
    engine = client(served, tmp_path)
    engine.update(policy)
    served.says = {CHAT: [429, 500, 503]}
    request = asked(policy, 3)
    found = engine.generate(policy, request)
    wanted = generate(policy, request)
    assert tokens(found) == tokens(wanted)
    assert served.asked[WORKERS] == 4, "behind a 503 there may be another server"
    served.says = {CHAT: [400]}
    with pytest.raises(
        UserError, match="vLLM refused /v1/chat/completions with status 400: .*said"
    ):
        engine.generate(policy, request)
    served.says = {"/reset_prefix_cache": [404]}
    with pytest.raises(UserError, match="has no /reset_prefix_cache; start it with `VLLM_SERVER_"):
        client(served, tmp_path)


def test_a_server_that_fails_at_a_request_is_asked_three_times(served, policy, tmp_path):
    engine = client(served, tmp_path, wait=600.0)
    served.says = {"/reset_prefix_cache": [500, 500, 500]}
    with pytest.raises(UserError, match="/reset_prefix_cache failed 3 times .*status 500.*resume"):
        engine.update(policy)
    served.says = {"/reset_prefix_cache": [500, 500]}
    engine.update(policy)


@pytest.mark.parametrize("url", ["h:8", "ftp://h", "http://", "http://h:p", "http://h:8\n", ""])
def test_an_url_that_is_none_is_refused_at_once(url: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="rollout.url is .*; wanted http://HOST:PORT"):
        VllmServerEngine(url, tmp_path)


def test_a_report_that_ends_too_early_is_refused(served, policy, tmp_path):
    policy.eos_ids = (policy.end_of_turn,)
    engine = client(served, tmp_path)
    engine.update(policy)
    served.short = 5
    with pytest.raises(
        UserError, match="5 tokens with no end of turn; wanted .* or 8 tokens: give"
    ):
        engine.generate(policy, asked(policy, 8))


def test_a_server_renders_the_template_with_the_policys_values(served, policy, tmp_path):
    template = policy.tokenizer.chat_template
    for reader in (policy, served.policy):
        reader.tokenizer.chat_template = template + "{% if not enable_thinking %}No.{% endif %}"
    engine = client(served, tmp_path)
    engine.update(policy)
    for style in ("short", "think"):
        encoded = [encode_prompt(policy, *study("a", 1), style=style)]
        request = SamplingRequest(encoded, group=3, max_new_tokens=2, seeds=SEEDS[:1])
        assert tokens(engine.generate(policy, request)) == tokens(generate(policy, request))
    other = replace(encoded[0], chat_template_kwargs={"enable_thinking": False})
    with pytest.raises(UserError, match="vLLM read the prompt as"):
        engine.generate(policy, replace(request, prompts=[other]))


def test_what_vllm_returns_is_checked() -> None:
    policy = tiny_policy()
    policy.eos_ids = (9, 8)
    asked = EncodedPrompt({"input_ids": torch.tensor([[1, 2, 2]])}, torch.arange(3)[None])

    def made(ids: list[int], limit: int, seen: list[int] | None = None, lost: int = 0) -> Rollout:
        request = SamplingRequest([asked], group=1, max_new_tokens=limit, seeds=[[0]])
        return rollout(policy, request, 0, seen, ids, [-1.0] * (len(ids) - lost))

    assert made([5, 6], 2, seen=[1, 2, 2]).finished is False
    assert made([5, 8], 2).finished is True and made([9], 2).ids.tolist() == [9]
    with pytest.raises(UserError, match="vLLM read the prompt as 2 tokens, the trainer as 3"):
        made([5, 6], 2, seen=[1, 2])
    with pytest.raises(UserError, match="2 tokens and 1 log-probs"):
        made([5, 6], 2, lost=1)
    with pytest.raises(UserError, match=r"3 tokens with ends of turn at \[1\]; wanted one"):
        made([5, 9, 6], 3)
    with pytest.raises(UserError, match=r"ends of turn at \[0, 1\]"):
        made([8, 9], 3)
    with pytest.raises(UserError, match="2 tokens with no end of turn; wanted .* 3 tokens"):
        made([5, 6], 3)


# An adapter goes to vLLM merged; what trains beside it goes too.
def adapted() -> Policy:
    policy = load_policy(tiny_directory(), freeze_vision=True)
    add_lora(policy, LoraSettings(rank=2), 0)
    return grow(policy, 1.0, only="lora_B")


def greedily(engine: VllmServerEngine | None, policy: Policy) -> list[Any]:
    prompts, seeds = [prompt(policy, "s", 1), prompt(policy, "ss", 0)], [[1, 2], [3, 4]]
    asked = SamplingRequest(prompts, group=2, max_new_tokens=8, seeds=seeds, greedy=True)
    return tokens(generate(policy, asked) if engine is None else engine.generate(policy, asked))


def test_a_server_has_the_adapter_of_each_step_and_the_base_once(served, tmp_path):
    policy = adapted()
    engine, found = client(served, tmp_path), []
    for step in (0, 1):
        engine.update(policy, step)
        found.append(greedily(engine, policy))
        assert found[-1] == greedily(None, policy)
        grow(policy, 1.0, only="lora_B")
    assert found[0] != found[1]
    with safe_open(tmp_path / "trained.safetensors", "pt") as file:
        assert all(".layers." in name for name in file.keys())  # noqa: SIM118
    # the start; whole and report; what trains and report
    assert served.asked[WORKERS] == 1 + 2 + 2


def test_the_adapter_of_a_reference_is_not_pushed(served: Served, tmp_path: Path) -> None:
    """It lies beside the policy's own where the start had learned something."""
    policy, plain = adapted(), adapted()
    alone = client(served, tmp_path / "plain").update(plain, 0)
    reference = reference_of(policy)
    assert any("rrgtrain_start" in name for name, _ in policy.model.named_parameters())
    pushed = client(served, tmp_path / "two").update(policy, 0)
    assert alone is not None and pushed is not None and pushed.digest == alone.digest
    reference.release()


@pytest.mark.parametrize("dies", [[(CHAT, 1)], [(WORKERS, 4)]], ids=str)
def test_a_server_that_starts_anew_between_two_pushes_gets_base_and_adapter(dies, served, tmp_path):
    policy = adapted()
    with torch.no_grad():
        policy.language_model.layers[0].mlp.up_proj.base_layer.weight.mul_(-2)
    engine = client(served, tmp_path)
    engine.update(policy, 0)
    greedily(engine, policy)
    grow(policy, 1.0, only="lora_B")
    served.back = 0.2
    if dies == [(CHAT, 1)]:
        served.stop()  # unseen, before the second push
        served.start()
        dies = []
    served.dies = dies.copy()
    engine.update(policy, 1)
    assert greedily(engine, policy) == greedily(None, policy)
    assert served.dies == [] and served.lives > 1


def test_what_trains_beside_an_adapter_is_pushed_too(tmp_path, monkeypatch):
    """A loaded policy may train its head or a norm beside the adapter."""
    policy, other = adapted(), adapted()  # which is another model, and goes whole
    norm = policy.language_model.norm.weight
    norm.requires_grad_(True)
    with torch.no_grad(), in_process(policy, tmp_path, monkeypatch) as engine:
        own = engine._llm.worker.policy.language_model.norm
        for step in (0, 1):
            engine.update(policy, step)
            torch.testing.assert_close(own.weight, norm)
            norm.mul_(1.5)
        other.language_model.norm.weight.mul_(4)
        engine.update(other, 2)
        torch.testing.assert_close(own.weight, other.language_model.norm.weight)


def test_an_adapter_that_has_changed_the_base_is_sent_with_that_base(served, tmp_path):
    policy = load_policy(tiny_directory())
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights="pissa")
    policy.model = get_peft_model(policy.model, config)
    engine = client(served, tmp_path)
    engine.update(policy, 0)
    assert greedily(engine, policy) == greedily(None, policy)
