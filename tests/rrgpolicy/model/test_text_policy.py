"""A policy of text alone, and a frozen tower that computes each picture once."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from rrgclinical.common.errors import UserError
from rrgkern import linear_token_logps
from rrgpolicy.model.forward import _run_tower, hidden_states, vision_embeddings
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.own_forward import VisionCache
from rrgpolicy.model.packed_windows import FLASH, PACKED_WINDOWS, vision_attention
from rrgpolicy.model.policy import Policy, training_only
from rrgpolicy.model.prompt import encode_prompt, prompt_text
from rrgpolicy.rollout import SamplingRequest, generate
from tests.rrgpolicy.model.common import REPORTS, prompt, study, text_policy, tiny_policy
from tests.rrgpolicy.model.equality import Group, assert_equal, unshared


def groups_of(policy: Policy, members: int = 3) -> list[Group]:
    """Three groups of unequal prompts and reports; the second has one member fewer."""
    made = []
    for b in range(3):
        p = prompt(policy, "s" * (b + 1), 0, indication="dyspnea" * b, comparison="none")
        reports = [REPORTS[(b + m) % 4][: 20 + 17 * m] for m in range(max(1, members - b % 2))]
        made.append((p, [policy.codec.encode(text) for text in reports]))
    return made


def logps_of(policy: Policy, groups: list[Group], **options: object) -> torch.Tensor:
    """As the trainer's update computes them."""
    prompts, members = zip(*groups, strict=True)
    hidden, batch = hidden_states(policy, prompts, members, **options)  # type: ignore[arg-type]
    weight, bias, _ = policy.head()
    return linear_token_logps(hidden, weight, batch.targets, bias=bias).logps


def assert_equal_computation(policy: Policy, groups: list[Group], **options: object) -> None:
    assert_equal(policy.model, logps_of(policy, groups, **options), unshared(policy.model, groups))


@pytest.mark.parametrize("attn", ["blocks", "dense"])
@pytest.mark.parametrize("members", [3, 1])
def test_log_probs_and_gradients_equal_the_unshared_ones(attn: str, members: int) -> None:
    policy = text_policy(dtype=torch.float64, attn=attn)
    groups = groups_of(policy, members)
    total = sum(len(p.input_ids) + sum(map(len, own)) for p, own in groups)
    for budget in (None, total, total // 2):
        assert_equal_computation(policy, groups, token_budget=budget)
    reached = {n for n, p in policy.model.named_parameters() if p.grad is not None}
    assert reached == {n for n, _ in policy.model.named_parameters()}, "every parameter"


def test_a_prompt_is_read_once_for_its_group_and_log_probs_are_the_updates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = text_policy(dtype=torch.float64)
    policy.eos_ids = tuple(range(40, 46))  # reports of many lengths
    prompts = [p for p, _ in groups_of(policy)]
    shapes, forward = [], policy.language_model.forward

    def watched(**arguments: torch.Tensor) -> object:
        read = arguments.get("inputs_embeds")
        shapes.append(tuple((arguments["input_ids"] if read is None else read).shape[:2]))
        return forward(**arguments)

    monkeypatch.setattr(policy.language_model, "forward", watched)
    seeds = [[10 * b + m for m in range(5)] for b in range(3)]
    request = SamplingRequest(prompts, group=5, temperature=0.8, max_new_tokens=40, seeds=seeds)
    made = generate(policy, request)
    monkeypatch.undo()
    assert shapes[0] == (3, max(len(p.input_ids) for p in prompts))
    assert shapes[1] == (15, 1) and all(length == 1 for _, length in shapes[1:])
    flat = [r for group in made for r in group]
    assert len({len(r.ids) for r in flat}) > 3
    with torch.no_grad():
        hidden, batch = hidden_states(policy, prompts, [[r.ids for r in g] for g in made])
        logps = torch.log_softmax(hidden @ policy.head().weight.T / 0.8, -1)
    wanted = logps.gather(1, batch.targets[:, None]).squeeze(1).float()
    torch.testing.assert_close(torch.cat([r.logps for r in flat]), wanted, rtol=1e-6, atol=1e-6)


def test_its_prompt_is_the_templates_and_its_checkpoint_an_ordinary_one(tmp_path: Path) -> None:
    policy = text_policy()
    assert policy.visual is None and policy.image_processor is None and policy.vision_frozen
    one, _ = study("s", 0, indication="fever <|im_end|>")
    found = encode_prompt(policy, one, [], style="short")
    text = prompt_text(one, style="short")
    assert text in policy.tokenizer.decode(found.input_ids)
    wanted = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    assert found.input_ids.tolist() == policy.tokenizer(wanted)["input_ids"]
    assert torch.equal(found.positions, torch.arange(len(found.input_ids))[None])
    again = load_policy(policy.save(tmp_path / "saved"), freeze_vision=True)
    assert not (tmp_path / "saved" / "preprocessor_config.json").exists()
    ours, theirs = policy.model.state_dict(), again.model.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)
    assert all(p.requires_grad for p in again.model.parameters())
    names = [again.tokenizer.convert_ids_to_tokens(i) for i in again.eos_ids]
    assert names == ["<|im_end|>", "<|endoftext|>"]


def test_what_it_cannot_do_is_told_in_one_line() -> None:
    policy = text_policy()
    told = "sft.train=vision, but a Qwen2ForCausalLM has no vision tower; use sft.train=all"
    with pytest.raises(UserError, match=told), training_only(policy, "vision"):
        pass


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
    assert list(cache) == ["b", "c"]
    assert cache.get("b").untyped_storage().nbytes() == 40, "no view of what was computed beside it"
    cache["d"] = torch.zeros(10)
    assert set(cache) == {"b", "d"}, "b was used since c"
    cache["huge"] = torch.zeros(30)
    assert "huge" not in cache and len(cache) == 2
    cache["b"] = torch.ones(5)
    assert bool(cache["b"].all()) and len(cache) == 2
    del cache["d"]


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


# flash-attn is taken where it can run; asked for elsewhere, one line says why it cannot.
@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    real = importlib.util.find_spec
    found = ModuleSpec("flash_attn", None) if request.param else None
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *more: found if name == "flash_attn" else real(name, *more),
    )


@pytest.mark.parametrize("installed", [True], indirect=True)
def test_installed_it_is_taken_on_a_gpu_in_16_bits(installed: None) -> None:
    assert vision_attention("auto", "cuda", torch.bfloat16) == FLASH
    assert vision_attention("auto", "cuda:1", torch.float16) == FLASH
    assert vision_attention(FLASH, "cuda", torch.bfloat16) == FLASH
    assert vision_attention("auto", "cpu", torch.bfloat16) == PACKED_WINDOWS
    assert vision_attention("auto", "cuda", torch.float32) == PACKED_WINDOWS
    assert vision_attention("packed", "cuda", torch.bfloat16) == PACKED_WINDOWS
    assert vision_attention("sdpa", "cuda", torch.bfloat16) == "sdpa"
    with pytest.raises(UserError, match="runs on a GPU only, and the policy is on cpu"):
        vision_attention(FLASH, "cpu", torch.bfloat16)
    with pytest.raises(UserError, match="16 bits only, and the policy is float32"):
        vision_attention(FLASH, "cuda", torch.float32)


@pytest.mark.parametrize("installed", [False], indirect=True)
def test_without_the_package(installed: None) -> None:
    assert vision_attention("auto", "cuda", torch.bfloat16) == PACKED_WINDOWS
    with pytest.raises(UserError, match="needs flash-attn; pip install"):
        vision_attention(FLASH, "cuda", torch.bfloat16)


def test_a_word_it_does_not_know() -> None:
    with pytest.raises(UserError, match="use one of auto, packed, sdpa, flash_attention_2"):
        vision_attention("flash", "cuda", torch.bfloat16)


def test_the_tower_is_loaded_with_it() -> None:
    assert tiny_policy().visual.config._attn_implementation == PACKED_WINDOWS
    with pytest.raises(UserError, match="runs on a GPU only"):
        tiny_policy(vision_attn=FLASH)
