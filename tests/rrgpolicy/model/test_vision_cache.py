"""A frozen vision tower computes each picture once, as far as the memory goes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from rrgpolicy.model.forward import _run_tower, hidden_states, vision_embeddings
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.vision_cache import VisionCache
from rrgpolicy.rollout import SamplingRequest, generate
from tests.rrgpolicy.model.common import prompt, tiny_policy


def frozen() -> tuple[Policy, list[int]]:
    """A policy and the pictures' patches of every pass of its tower."""
    policy = tiny_policy(freeze_vision=True)
    passes: list[int] = []
    real = policy.visual.forward

    def counted(pixels: torch.Tensor, **options: object) -> object:
        passes.append(len(pixels))
        return real(pixels, **options)

    policy.visual.forward = counted
    return policy, passes


def test_rollout_update_and_reference_share_one_pass() -> None:
    policy, passes = frozen()
    policy.vision_cache = VisionCache(1 << 20)
    prompts = [prompt(policy, "s", 1), prompt(policy, "ss", 2), prompt(policy, "sss", 0)]
    ids = [[policy.codec.encode("Clear.")] for _ in prompts]
    generate(policy, SamplingRequest(prompts, group=2, max_new_tokens=3, seeds=[[0, 1]] * 3))
    assert len(passes) == 2, "a pass for each study with pictures"
    for _ in range(2):
        hidden_states(policy, prompts, ids)
    assert len(passes) == 2
    hidden_states(policy, [prompt(policy, "ssss", 1)], ids[:1])
    assert len(passes) == 3


def test_bits_do_not_depend_on_company_or_on_what_was_kept() -> None:
    policy, _ = frozen()
    prompts = [prompt(policy, "s" * k, 1 + k % 2) for k in range(1, 6)]
    policy.vision_cache = VisionCache(0)
    alone = [vision_embeddings(policy, [p]) for p in prompts]
    policy.vision_cache = VisionCache(1 << 20)
    for _ in range(2):
        together = vision_embeddings(policy, prompts)
        assert together is not None
        assert torch.equal(together, torch.cat([e for e in alone if e is not None]))


def test_it_is_refused_while_the_tower_trains() -> None:
    policy = tiny_policy()
    policy.vision_cache = VisionCache(1 << 20)
    with pytest.raises(ValueError, match="would go stale"):
        vision_embeddings(policy, [prompt(policy, "s", 1)])


def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    cache = VisionCache(100)
    whole = torch.zeros(1000)
    for name in "abc":
        cache[name] = whole[:10]  # 40 bytes, of a storage of 4,000
    assert list(cache) == ["b", "c"] and cache.bytes == 80
    assert cache["b"].untyped_storage().nbytes() == 40, "no view of what was computed beside it"
    cache["d"] = torch.zeros(10)
    assert set(cache) == {"b", "d"}, "b was used since c"
    cache["huge"] = torch.zeros(30)
    assert "huge" not in cache and len(cache) == 2
    cache["b"] = torch.ones(5)
    assert cache.bytes == 60 and bool(cache["b"].all())
    del cache["d"]
    assert cache.bytes == 20
    assert cache.get("gone") is None


def test_pictures_go_to_the_device_as_they_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the CPU joins or converts first is no longer pinned, and its copy is waited for."""
    policy = tiny_policy()
    prompts = [prompt(policy, "s", 1), prompt(policy, "ss", 2)]
    joined: list[str] = []
    cat = torch.cat

    def noted(parts: list[torch.Tensor]) -> torch.Tensor:
        joined.extend(f"{part.device} {part.dtype}" for part in parts if part.is_floating_point())
        return cat(parts)

    def tower(pixels: torch.Tensor, grid_thw: torch.Tensor) -> Any:
        assert (pixels.dtype, pixels.device.type) == (torch.bfloat16, grid_thw.device.type)
        return SimpleNamespace(pooler_output=pixels)

    monkeypatch.setattr(torch, "cat", noted)
    visual = type("Tower", (), {"spatial_merge_size": 1, "__call__": staticmethod(tower)})()
    network = SimpleNamespace(device=torch.device("meta"), dtype=torch.bfloat16, visual=visual)
    assert len(_run_tower(cast(Any, network), prompts)) == 2
    assert joined == ["meta torch.float32"] * 2
