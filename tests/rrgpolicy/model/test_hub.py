"""The hub's own files: tied weights, configuration for generation, ids that are never sampled."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig

from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy, add_lora
from rrgpolicy.rollout import (
    SamplingRequest,
    VllmServerEngine,
    checkpoint_tensors,
    generate,
    named_as_loaded,
)
from rrgpolicy.settings import LoraSettings
from rrgpolicy.vllm_worker import digest_of
from tests.rrgpolicy.hub import SPARE, hub_directory, small_hub_directory
from tests.rrgpolicy.model.common import prompt, text_policy, tiny_policy
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
def test_weights_say_if_they_are_tied_and_a_sampler_gets_each_once(
    root: bool, head: str, tied: bool, tmp_path: Path
) -> None:
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
