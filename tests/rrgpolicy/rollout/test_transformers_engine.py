"""Rollouts: greedy equals transformers' own, log-probs equal the training forward's, members
depend on their seed alone."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from rrgpolicy.model.forward import hidden_states
from rrgpolicy.model.load import Policy
from rrgpolicy.rollout import Rollout, SamplingRequest, generate, transformers_engine
from rrgpolicy.rollout.cache import GroupCache, GroupLayer, Members
from rrgpolicy.rollout.transformers_engine import RepeatedStep
from tests.operators import Operators
from tests.rrgpolicy.model import families
from tests.rrgpolicy.model.common import prompts_of, tiny_policy
from tests.rrgpolicy.rollout.test_any_family import policy_of

STEPS = 70  # beyond the cache's first chunk of 64 places


def seeds_for(count: int, group: int) -> list[list[int]]:
    return [[1000 * b + m for m in range(group)] for b in range(count)]


def ending_policy(**options: object) -> Policy:
    """A policy that ends its turn now and then: reports of many lengths, rows that leave early."""
    policy = tiny_policy(**options)
    policy.eos_ids = tuple(range(40, 46))
    return policy


def test_greedy_equals_transformers() -> None:
    policy = tiny_policy()
    prompts = prompts_of(policy)
    request = SamplingRequest(
        prompts, group=2, max_new_tokens=STEPS, seeds=seeds_for(4, 2), greedy=True
    )
    ours = generate(policy, request)
    for p, group in zip(prompts, ours, strict=True):
        images = {}
        if p.pixel_values is not None:
            images = {
                "pixel_values": p.pixel_values,
                "image_grid_thw": p.image_grid_thw,
                "mm_token_type_ids": p.mm_token_type_ids[None].int(),
            }
        theirs = policy.backbone.generate(
            input_ids=p.input_ids[None],
            attention_mask=torch.ones_like(p.input_ids[None]),
            do_sample=False,
            max_new_tokens=STEPS,
            **images,
        )[0, len(p.input_ids) :]
        for rollout in group:
            assert torch.equal(rollout.ids, theirs[: len(rollout.ids)])
            assert rollout.finished or len(rollout.ids) == STEPS


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logps_equal_the_training_forward(temperature: float) -> None:
    """In fp64, so that nothing but the rounding of the log-probs themselves is forgiven."""
    policy = ending_policy(dtype=torch.float64)
    prompts = prompts_of(policy)
    request = SamplingRequest(
        prompts, group=6, temperature=temperature, max_new_tokens=STEPS, seeds=seeds_for(4, 6)
    )
    rollouts = generate(policy, request)
    flat = [r for group in rollouts for r in group]
    lengths = {len(r.ids) for r in flat}
    assert len(lengths) > 4, "reports of one length would not exercise rows that leave"
    assert {r.finished for r in flat} == {True, False}
    ours = torch.cat([r.logps for r in flat])
    assert ours.dtype == torch.float32
    with torch.no_grad():
        hidden, batch = hidden_states(policy, prompts, [[r.ids for r in g] for g in rollouts])
        logps = torch.log_softmax(hidden @ policy.head().weight.T / temperature, -1)
    theirs = logps.gather(1, batch.targets[:, None]).squeeze(1).float()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_members_depend_on_their_seed_alone() -> None:
    policy = ending_policy()
    prompts, seeds = prompts_of(policy), seeds_for(4, 5)
    request = SamplingRequest(prompts, group=5, max_new_tokens=30, seeds=seeds)
    together = generate(policy, request)
    for b in (0, 3):
        few = SamplingRequest(
            prompts[b : b + 1], group=2, max_new_tokens=40, seeds=[seeds[b][3:1:-1]]
        )
        alone = generate(policy, few)
        for mine, theirs in zip(alone[0], (together[b][3], together[b][2]), strict=True):
            assert torch.equal(mine.ids[:30], theirs.ids)
    again = generate(policy, request)
    other = generate(policy, replace(request, seeds=[[s + 1 for s in g] for g in seeds]))
    for left, right, changed in zip(together[0], again[0], other[0], strict=True):
        assert torch.equal(left.ids, right.ids)
        assert torch.equal(left.logps, right.logps)
        assert not torch.equal(left.ids, changed.ids)


def test_the_policy_is_left_as_it_was() -> None:
    policy = tiny_policy(gradient_checkpointing=True)
    policy.model.train()
    prompts = prompts_of(policy)[:2]
    before = {k: v.clone() for k, v in policy.model.state_dict().items()}
    request = SamplingRequest(prompts, group=2, max_new_tokens=5, seeds=seeds_for(2, 2))
    rollouts = generate(policy, request)
    assert policy.model.training
    assert all(torch.equal(before[k], v) for k, v in policy.model.state_dict().items())
    # The ids serve in a forward that needs gradients.
    hidden, _ = hidden_states(policy, prompts, [[r.ids for r in g] for g in rollouts])
    hidden.sum().backward()


def test_bad_requests_are_told() -> None:
    policy = tiny_policy()
    prompts = prompts_of(policy)[:1]
    good = {"group": 2, "max_new_tokens": 3, "seeds": [[1, 2]]}
    assert generate(policy, SamplingRequest([], **(good | {"seeds": []}))) == []
    for change, message in (
        ({"seeds": [[1]]}, r"seeds for 1 prompts with \[1\] members: give 1 lists of 2"),
        ({"seeds": []}, "seeds for 0 prompts"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"group": 0}, "group=0"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
    ):
        with pytest.raises(ValueError, match=message):
            SamplingRequest(prompts, **(good | change))


REPEATED_STEPS = 40


class Addresses:
    """Repeat a decoder's step; `captures` counts the steps after which buffers were other ones."""

    captures = 0

    def __init__(self) -> None:
        self.at: list[tuple[int, torch.Size]] | None = None

    def forget(self) -> None:
        self.at = None

    def __call__(self, compute: Callable[[Tensor], Tensor], token: Tensor) -> Tensor:
        loop: Any = compute.__self__  # type: ignore[attr-defined]
        decoder, cache = loop.decoder, loop.decoder.cache
        holders = [loop, decoder, cache.members, *cache.layers]
        values = [v for holder in holders for v in vars(holder).values()]
        values += [v for layer in values if isinstance(layer, dict) for v in layer.values()]
        buffers = [v for v in values if torch.is_tensor(v) and v is not decoder.hidden]
        at = [(t.data_ptr(), t.shape) for t in buffers]
        type(self).captures += self.at is None
        assert self.at in (None, at), "a graph would read memory that was given back"
        self.at = at
        return compute(token)


def sampled(greedy: bool, device: str = "cpu", family: str = "") -> list[Rollout]:
    policy = policy_of(family) if family else ending_policy(device=device)
    prompts = [families.prompt(policy, family, 1, 9 * n, n) for n in (2, 1, 3, 2)] if family else []
    request = SamplingRequest(
        prompts or prompts_of(policy),
        group=5,
        max_new_tokens=REPEATED_STEPS,
        seeds=seeds_for(4, 5),
        greedy=greedy,
    )
    return [rollout for group in generate(policy, request) for rollout in group]


def alike(one: list[Rollout], other: list[Rollout]) -> None:
    for left, right in zip(one, other, strict=True):
        assert torch.equal(left.ids, right.ids) and left.finished == right.finished
        torch.testing.assert_close(left.logps, right.logps, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("greedy", [False, True])
def test_a_repeated_step_reads_the_buffers_that_are_there(monkeypatch, greedy):
    repeats_alike(monkeypatch, greedy)


@pytest.mark.parametrize("family", ["qwen3_5", "gemma3"])
def test_a_repeated_step_keeps_states_and_windows(monkeypatch, family):
    repeats_alike(monkeypatch, False, family)


def repeats_alike(monkeypatch: pytest.MonkeyPatch, greedy: bool, family: str = "") -> None:
    anew = sampled(greedy, family=family)
    lengths = {len(r.ids) for r in anew}
    assert len(lengths) > 3, lengths  # rows leave at different steps
    monkeypatch.setattr(transformers_engine, "repeats", lambda device: True)
    monkeypatch.setattr(transformers_engine, "RepeatedStep", Addresses)
    # grows and compacts within these reports, as often as rows end
    monkeypatch.setattr(transformers_engine, "TOKENS_A_READ", {True: 1})
    monkeypatch.setattr(transformers_engine, "CHUNK", {True: 16})
    monkeypatch.setattr(Addresses, "captures", 0)
    alike(sampled(greedy, family=family), anew)
    assert Addresses.captures > 3


def copied(operator: Any, _: Any, result: Any) -> list[int]:
    """The size of what is copied."""
    return [result.numel()] if operator._schema.name in ("aten::clone", "aten::_to_copy") else []


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_copies_neither_prompts_nor_room(device: str, dtype: torch.dtype) -> None:
    prompts, group, heads, width, length, room = 2, 3, 2, 16, 500, 300
    prefill = DynamicLayer()
    prefill.keys = torch.ones(prompts, length, heads, width, dtype=dtype, device=device)
    prefill.keys = prefill.values = prefill.keys.transpose(1, 2)
    layer = GroupLayer(prefill, Members(prompts, group, torch.device(device)))
    layer.grow(room)
    query = torch.ones(prompts * group, 2 * heads, 1, width, dtype=dtype, device=device)
    new = query[:, :heads]
    layer.update(new, new)
    with Operators(copied) as copies:
        layer.attend(query, None, 1.0, {})
    assert 0 < max(copies.noted) < prompts * min(length, group * room) * heads * width


def test_the_second_call_is_captured_and_later_ones_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    class Graph:
        def replay(self) -> None:
            calls.append("replay")

    def compute(tensor: Tensor) -> Tensor:
        calls.append("computed")
        return tensor

    def captured(*_: object) -> Graph:
        calls.append("captured")
        return Graph()

    step = RepeatedStep()
    monkeypatch.setattr(step, "_captured", captured)
    for _ in range(3):
        step(compute, torch.zeros(0))
    step.forget()
    step(compute, torch.zeros(0))
    assert calls == ["computed", "captured", "replay", "replay", "computed"]


def test_a_step_that_cannot_be_captured_runs_as_it_is_and_says_so(monkeypatch):
    def captured(*_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    step = RepeatedStep()
    monkeypatch.setattr(step, "_captured", captured)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            step.forget()
            results = [step(torch.neg, torch.tensor([n])).item() for n in range(3)]
    assert "cannot be a CUDA graph (RuntimeError: operation not permitted" in str(said[0].message)
    assert results == [0, -1, -2] and len(said) == 1


def test_a_cache_is_given_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    caches: list[weakref.ref[GroupCache]] = []

    def watched(*words: Any, **options: Any) -> GroupCache:
        cache = GroupCache(*words, **options)
        caches.append(weakref.ref(cache))
        return cache

    monkeypatch.setattr("rrgpolicy.rollout.cache.GroupCache", watched)
    monkeypatch.setattr(transformers_engine, "repeats", lambda device: True)
    monkeypatch.setattr(transformers_engine, "RepeatedStep", Addresses)
    gc.disable()
    try:
        sampled(True)
        assert [cache() for cache in caches] == [None]
    finally:
        gc.enable()


@pytest.mark.gpu
@pytest.mark.parametrize("greedy", [False, True])
def test_a_graph_gives_what_the_model_gives(monkeypatch: pytest.MonkeyPatch, greedy: bool) -> None:
    graphs = []
    captured = RepeatedStep._captured

    def count(self: RepeatedStep, *step: Any) -> torch.cuda.CUDAGraph:
        graphs.append(step)
        return captured(self, *step)

    monkeypatch.setattr(RepeatedStep, "_captured", count)
    monkeypatch.setattr(transformers_engine, "CHUNK", {True: 16, False: 64})
    repeated = sampled(greedy, "cuda")
    assert len(graphs) > 2
    monkeypatch.setattr(transformers_engine, "repeats", lambda device: False)
    alike(repeated, sampled(greedy, "cuda"))
