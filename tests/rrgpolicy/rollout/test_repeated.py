"""Steps of decoding that are repeated give what steps that are computed anew give.

A CUDA graph reads and writes the addresses that it was captured with. `Addresses` stands in for it
without a GPU: it computes, and holds every repetition to the addresses of the first one.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.cache_utils import DynamicLayer

from rrgpolicy.rollout import Rollout, SamplingRequest, generate, transformers_engine
from rrgpolicy.rollout.cache import GroupCache, GroupLayer, Members
from rrgpolicy.rollout.transformers_engine import RepeatedStep
from tests.rrgpolicy.model.families import prompt
from tests.rrgpolicy.rollout.test_any_family import policy_of
from tests.rrgpolicy.rollout.test_transformers_engine import ending_policy, prompts_of, seeds_for

STEPS = 40


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
    prompts = [prompt(policy, family, 1, 9 * n, n) for n in (2, 1, 3, 2)] if family else []
    request = SamplingRequest(
        prompts or prompts_of(policy),
        group=5,
        max_new_tokens=STEPS,
        seeds=seeds_for(4, 5),
        greedy=greedy,
    )
    return [rollout for group in generate(policy, request) for rollout in group]


def alike(one: list[Rollout], other: list[Rollout]) -> None:
    for left, right in zip(one, other, strict=True):
        assert torch.equal(left.ids, right.ids) and left.finished == right.finished
        torch.testing.assert_close(left.logps, right.logps, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("greedy", [False, True])
def test_a_repeated_step_reads_the_buffers_that_are_there(
    monkeypatch: pytest.MonkeyPatch, greedy: bool
) -> None:
    repeats_alike(monkeypatch, greedy)


@pytest.mark.parametrize("family", ["qwen3_5", "gemma3"])
def test_a_repeated_step_keeps_states_and_windows(
    monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
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


class Copies(TorchDispatchMode):
    """Note the sizes of what is copied."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = op(*args, **(kwargs or {}))
        if op._schema.name in ("aten::clone", "aten::_to_copy"):
            self.sizes.append(out.numel())
        return out


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
    with Copies() as copies:
        layer.attend(query, None, 1.0, {})
    assert 0 < max(copies.sizes) < prompts * min(length, group * room) * heads * width


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


def test_a_step_that_cannot_be_captured_runs_as_it_is_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
