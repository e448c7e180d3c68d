"""A policy of text alone, and a frozen tower that computes each picture once."""

from __future__ import annotations

import importlib.util
from contextlib import nullcontext
from importlib.machinery import ModuleSpec
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from rrgclinical.common.errors import UserError
from rrgpolicy.model.forward import hidden_states, vision_embeddings
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.own_forward import VisionCache
from rrgpolicy.model.packed_windows import FLASH, PACKED_WINDOWS, vision_attention
from rrgpolicy.model.policy import Policy, training_only
from rrgpolicy.model.prompt import encode_prompt, prompt_text
from rrgpolicy.rollout import SamplingRequest, generate
from tests.rrgpolicy.model.common import prompt, study, text_policy, tiny_policy


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


def frozen() -> tuple[Policy, Mock]:
    """A policy and its tower's forward, which counts its calls."""
    policy = tiny_policy(freeze_vision=True)
    policy.visual.forward = forward = Mock(wraps=policy.visual.forward)
    return policy, forward


def test_rollout_update_and_reference_share_one_pass() -> None:
    policy, passes = frozen()
    policy.vision_cache = VisionCache(1 << 20)
    prompts = [prompt(policy, "s", 1), prompt(policy, "ss", 2), prompt(policy, "sss", 0)]
    ids = [[policy.codec.encode("Clear.")] for _ in prompts]
    generate(policy, SamplingRequest(prompts, group=2, max_new_tokens=3, seeds=[[0, 1]] * 3))
    assert passes.call_count == 2, "a pass for each study with pictures"
    for _ in range(2):
        hidden_states(policy, prompts, ids)
    assert passes.call_count == 2
    hidden_states(policy, [prompt(policy, "ssss", 1)], ids[:1])
    assert passes.call_count == 3
    packed = hidden_states(policy, prompts, ids)[0]
    policy.sharing = "cache"  # whose forward keeps what the family makes of the pictures
    for _ in range(2):
        torch.testing.assert_close(hidden_states(policy, prompts, ids)[0], packed)
    assert passes.call_count == 5


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


# flash-attn is taken where it can run; asked for elsewhere, one line says why it cannot.
BF16, FP32 = torch.bfloat16, torch.float32


@pytest.mark.parametrize(
    ("installed", "asked", "device", "dtype", "taken"),
    [
        (True, "auto", "cuda", BF16, FLASH),
        (True, "auto", "cuda:1", torch.float16, FLASH),
        (True, FLASH, "cuda", BF16, FLASH),
        (True, "auto", "cpu", BF16, PACKED_WINDOWS),
        (True, "auto", "cuda", FP32, PACKED_WINDOWS),
        (True, "packed", "cuda", BF16, PACKED_WINDOWS),
        (True, "sdpa", "cuda", BF16, "sdpa"),
        (False, "auto", "cuda", BF16, PACKED_WINDOWS),
        (True, FLASH, "cpu", BF16, "runs on a GPU only, and the policy is on cpu"),
        (True, FLASH, "cuda", FP32, "16 bits only, and the policy is float32"),
        (False, FLASH, "cuda", BF16, "needs flash-attn; pip install"),
        (False, "flash", "cuda", BF16, "use one of auto, packed, sdpa, flash_attention_2"),
    ],
)
def test_flash_attn_is_taken_where_it_runs(monkeypatch, installed, asked, device, dtype, taken):
    real = importlib.util.find_spec
    found = ModuleSpec("flash_attn", None) if installed else None
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *more: found if name == "flash_attn" else real(name, *more),
    )
    refused = pytest.raises(UserError, match=taken) if " " in taken else nullcontext()
    with refused:
        assert vision_attention(asked, device, dtype) == taken
