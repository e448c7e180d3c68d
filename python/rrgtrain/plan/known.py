"""Find the sizes of a recipe's policy, without a weight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import Qwen2_5_VLConfig

from rrgclinical.common import json_reader
from rrgpolicy.model.load import base_of_adapter, fetch, read_config
from rrgpolicy.model.tiny import SPECIAL_TOKENS, TinyConfig, model_config
from rrgtrain.plan.sizes import Sizes, read_sizes
from rrgtrain.schema import LoraSettings, PolicySettings

_TOWER = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "fullatt_block_indexes": [7, 15, 23, 31],
}
_QWEN_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "vision_config": {**_TOWER, "out_hidden_size": 3584},
}
KNOWN: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-VL-3B-Instruct": {
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
        "vision_config": {**_TOWER, "out_hidden_size": 2048},
    },
    "Qwen/Qwen2.5-VL-7B-Instruct": _QWEN_7B,
    "FreedomIntelligence/HuatuoGPT-Vision-7B-Qwen2.5VL": _QWEN_7B,
}
"""Sizes in the published config.json of the recipes' policies, so that no hub is asked."""


def sizes_of(policy: PolicySettings) -> Sizes:
    """Find the sizes of a recipe's policy.

    A hub is asked only for a name that is not `KNOWN`.
    Raises UserError where there is no such checkpoint, or the trainer knows no such model.
    """
    if policy.path == "tiny":
        return tiny_sizes(policy)
    if policy.path in KNOWN:
        return read_sizes(Qwen2_5_VLConfig(**KNOWN[policy.path]))
    config = read_config(policy.path)
    return fetch(policy.path, lambda: read_sizes(config), "the sizes of ")


def lora_rank(policy: PolicySettings) -> int:
    """Return the rank of the adapter that trains: the recipe's or its checkpoint's."""
    if policy.lora.rank or policy.path == "tiny":
        return policy.lora.rank
    file = Path(policy.path) / "adapter_config.json"
    if not file.is_file():
        return 0
    base_of_adapter(policy.path)  # refuses one that cannot be read
    return fetch(
        policy.path, lambda: int(json_reader.read(file, dict).get("r", LoraSettings().rank))
    )


def tiny_sizes(policy: PolicySettings) -> Sizes:
    """Return the sizes of the policy that `tiny` builds; UserError for those that cannot be."""
    ids = dict.fromkeys(SPECIAL_TOKENS, 0)
    return read_sizes(model_config(TinyConfig.of(policy), policy.vocabulary, ids))
