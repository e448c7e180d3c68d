"""The hub's own files: tied weights, configuration for generation, ids that are never sampled."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, GenerationConfig

from rrgpolicy.model.codec import ReportCodec
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.model.template import end_of_turn
from rrgpolicy.rollout import (
    SamplingRequest,
    VllmServerEngine,
    checkpoint_tensors,
    generate,
    named_as_loaded,
)
from rrgpolicy.settings import LoraSettings
from rrgpolicy.vllm_worker import digest_of
from tests.real_data import IU_XRAY
from tests.rrgpolicy.hub import SPARE, hub_directory, needed, small_hub_directory
from tests.rrgpolicy.model.common import REPORTS, prompt, text_policy, tiny_policy
from tests.rrgpolicy.rollout.served import Served

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
SHARD = "model-00001-of-00003.safetensors"


def edited(directory: Path, root: bool | None, head: str) -> Path:
    """A copy whose config.json says `root` of ties, or nothing; head: that of the files."""
    shutil.copytree(small_hub_directory(), directory)
    config = json.loads((directory / "config.json").read_text())
    config.pop("tie_word_embeddings")
    if root is not None:
        config["tie_word_embeddings"] = root
    (directory / "config.json").write_text(json.dumps(config))
    if head:
        index = json.loads((directory / "model.safetensors.index.json").read_text())
        where = index["weight_map"]
        own = load_file(directory / where[EMBEDDING])[EMBEDDING]
        tensors = load_file(directory / SHARD)
        tensors[HEAD] = own.clone() if head == "same" else own.flip(0).contiguous()
        save_file(tensors, directory / SHARD, {"format": "pt"})
        where[HEAD] = SHARD
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


@pytest.mark.parametrize(
    ("root", "head", "tied"),
    [(True, "", True), (True, "same", True), (True, "other", False), (False, "other", False)],
)
def test_weights_say_if_they_are_tied_and_a_sampler_gets_each_once(root, head, tied, tmp_path):
    policy = load_policy(edited(tmp_path / "hub", root, head))
    assert policy.ties_head == tied
    told = [part.tie_word_embeddings for part in (policy.config, policy.text_config)]
    assert told == [tied, tied], "vLLM reads either"
    saved = policy.save(tmp_path / "saved")
    again = load_policy(saved)
    assert again.ties_head == tied
    with Served(saved) as served:
        for own in (policy, again):
            # nobody asks the configuration, which may leave it out
            for part in (own.config, own.text_config):
                del part.tie_word_embeddings
            wanted = {n: t for n, t in checkpoint_tensors(own).items() if ".visual." not in n}
            assert (HEAD in wanted) != tied
            engine = VllmServerEngine(served.url, tmp_path / "work")
            pushed = engine.update(own)
            loaded = named_as_loaded(own, wanted)
            assert pushed is not None and pushed.digest == digest_of(loaded.items())


def saved(policy: Policy, directory: Path) -> dict[str, Any]:
    policy.save(directory)
    return json.loads((directory / "generation_config.json").read_text())


def test_a_saved_policy_generates_by_default_as_it_is_evaluated(tmp_path: Path) -> None:
    """The hub's penalty and temperature are gone, from an adapter's directory too."""
    policy, wide = load_policy(hub_directory()), load_policy(hub_directory())
    add_lora(wide, LoraSettings(rank=2), seed=0)
    for name, own in (("whole", policy), ("adapter", wide), ("text", text_policy())):
        found = saved(own, tmp_path / name)
        assert found.pop("eos_token_id") == list(own.eos_ids)
        assert found.pop("pad_token_id") == own.pad_id
        assert found.pop("suppress_tokens") == list(own.never_sampled) != []
        neutral = {"do_sample": False, "temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.0}
        assert {k: v for k, v in found.items() if k != "transformers_version"} == neutral
        read = GenerationConfig.from_pretrained(tmp_path / name)
        assert not read.do_sample and read.top_k is None and read.min_p is None


def likely(policy: Policy, tokens: Mapping[int, float]) -> Policy:
    """The policy with a bias of its head, which makes tokens likely wherever it stands."""
    own = replace(policy)
    weight = own.backbone.lm_head.weight
    bias = torch.zeros(len(weight))
    for token, value in tokens.items():
        bias[token] = value
    own.backbone.lm_head.bias = torch.nn.Parameter(bias)
    return own


@pytest.mark.parametrize("kind", ["hub", "tiny", "text"])
def test_ids_of_images_and_videos_are_never_sampled(kind: str) -> None:
    policy = {"hub": lambda: load_policy(hub_directory()), "tiny": tiny_policy}.get(
        kind, text_policy
    )()
    never = set(policy.never_sampled)
    names = {policy.tokenizer.convert_ids_to_tokens(i) for i in never}
    parts = ("vision_start", "vision_end", "vision_pad", "image_pad", "video_pad")
    assert names == {f"<|{part}|>" for part in parts}
    assert policy.embedding_shape[0] - len(policy.tokenizer) == (SPARE if kind == "hub" else 0)
    own = likely(policy, dict.fromkeys(never, 90.0))
    prompts = [prompt(own, "s", 0 if kind == "text" else 1)]
    for options in ({"greedy": True}, {}, {"top_p": 0.9, "temperature": 0.7}):
        request = SamplingRequest(
            prompts, group=4, max_new_tokens=12, seeds=[[1, 2, 3, 4]], **options
        )
        rollouts = [r for group in generate(own, request) for r in group]
        ids = torch.cat([r.ids for r in rollouts])
        assert not never & set(ids.tolist()), options
        assert "greedy" in options or len(set(ids.tolist())) > 3, "what is left is drawn from"
        logps = torch.cat([r.logps for r in rollouts])
        # those of all ids, as the trainer computes them; those of a nucleus are renormalised
        assert bool((logps < -20).all()) != ("top_p" in options)


# Published tokenizers take real reports to ids and back, and know the end of a turn.
ROOT = Path(__file__).parents[3]
# What the chat template writes behind an answer; Llama 2's package has none.
ENDS = {"qwen3": "<|im_end|>", "gemma3": "<end_of_turn>", "llama3": "<|eot_id|>", "llama2": None}
SHOWN = {
    "qwen3": {"<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>"}
    | {"<|video_pad|>"},
    "gemma3": {"<start_of_image>", "<end_of_image>", "<image_soft_token>"},
    "llama2": set(),
    "llama3": set(),
}


@lru_cache(maxsize=4)
def opened(name: str) -> tuple[Any, ReportCodec, list[int]]:
    """The tokenizer, its codec and the ids that are never sampled; skips where it is absent."""
    tokenizer = AutoTokenizer.from_pretrained(needed(name))
    end, rows = tokenizer.eos_token_id, len(tokenizer) + 7
    held: Any = SimpleNamespace(
        config=SimpleNamespace(), tokenizer=tokenizer, eos_ids=(end,), embedding_shape=(rows, 8)
    )
    held.never_sampled = Policy.never_sampled.func(held)  # type: ignore[attr-defined]
    special = Policy.special_ids.func(held)  # type: ignore[attr-defined]
    return tokenizer, ReportCodec(tokenizer, [end], end, rows, special), [*held.never_sampled]


@pytest.mark.parametrize("name", ENDS)
def test_reports_and_edits_are_exact(name: str) -> None:
    tokenizer, codec, never = opened(name)
    assert {*tokenizer.convert_ids_to_tokens(never)} == SHOWN[name]
    if tokenizer.chat_template is not None:
        found = end_of_turn(tokenizer)
        assert found is not None and tokenizer.convert_ids_to_tokens(found) == ENDS[name]
    odd = [f"{token} in a report" for token in tokenizer.all_special_tokens[:12]]
    for text in (*REPORTS, *odd, " \u2581<0x41>\n\n", "<think>a</think>\n<report>b</report>"):
        ids = codec.encode(text)
        assert codec.decode(ids) == text
        assert not {*ids[:-1].tolist()} & {*tokenizer.all_special_ids}, text
        spans = codec.char_spans(ids)
        assert "".join(text[a:b] for a, b in spans) == text or not text.isascii()
        change = len(text) // 2
        edited = codec.reencode_from(ids, text[:change] + "n edit.", change)
        assert codec.decode(edited) == text[:change] + "n edit."
        before = sum(b <= change for _, b in spans[:-1])
        assert torch.equal(edited[:before], ids[:before]) or not text.isascii()


@pytest.mark.realdata
@pytest.mark.skipif(not IU_XRAY.is_dir(), reason=f"no real data at {IU_XRAY}; set RRG_DATA")
@pytest.mark.parametrize("name", ENDS)
def test_every_report_of_iu_xray_makes_the_round_trip(name: str) -> None:
    tokenizer, codec, _ = opened(name)
    lines = (IU_XRAY / "sections.jsonl").read_text().splitlines()
    texts = [json.loads(line)["findings"] for line in lines]
    assert len(texts) == 2365
    own = tokenizer(texts, add_special_tokens=False)["input_ids"]
    for text, theirs in zip(texts, own, strict=True):
        ids = codec.encode(text)
        assert codec.decode(ids) == text
        assert ids[:-1].tolist() == theirs, text
