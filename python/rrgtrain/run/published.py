"""Write what transformers 5 saves as the hub has it, for readers that are older.

What those do not find they replace by a default: a model whose `rope_theta` lies in
`rope_parameters` gets one of 10,000, and says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rrgclinical.common import json_reader

# Whose configurations the hub has in one part, with the older names alone.
FLAT = ("qwen2", "qwen2_vl", "qwen2_5_vl")
# What a tokenizer says of the machine that saved it.
_LOADING = ("backend", "is_local", "local_files_only")


def as_published(directory: Path) -> None:
    """Rewrite `config.json`, where there is one, and `tokenizer_config.json` in place."""
    template = (directory / "chat_template.jinja").read_text(encoding="utf-8")
    _rewrite(directory / "config.json", model_config)
    _rewrite(
        directory / "tokenizer_config.json",
        lambda c: tokenizer_config(c) | {"chat_template": template},
    )


def model_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return a model's configuration with `rope_theta`, `rope_scaling` and `torch_dtype`.

    It is flat where the hub's is, and has its parts where the hub's has them.
    """
    published = {"torch_dtype" if k == "dtype" else k: v for k, v in config.items()}
    if config.get("model_type") in FLAT:
        text = {k: v for k, v in published.pop("text_config", {}).items() if k != "model_type"}
        published = text | published
        return published | _older_rope(published.pop("rope_parameters"))
    part = published.get("text_config", published)
    part |= _older_rope(part.get("rope_parameters") or {})
    return published


def _older_rope(parameters: dict[str, Any]) -> dict[str, Any]:
    """Name rotary embeddings as readers do that know no `rope_parameters`.

    Layers of two kinds are Gemma 3's; those of others have no older name.
    """
    kinds = parameters.keys() == {"full_attention", "sliding_attention"}
    rope = dict(parameters["full_attention"] if kinds else parameters)
    if "rope_theta" not in rope:
        return {}
    older = {"rope_theta": rope.pop("rope_theta")}
    if kinds:
        older["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
    if rope != {"rope_type": "default"}:
        older["rope_scaling"] = rope
    return older


def tokenizer_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return a tokenizer's configuration with `additional_special_tokens`."""
    config = {k: v for k, v in config.items() if k not in _LOADING}
    if "extra_special_tokens" in config:
        config["additional_special_tokens"] = config.pop("extra_special_tokens")
    return config


def _rewrite(file: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    if not file.exists():  # an adapter alone has no config.json
        return
    config = change(json_reader.read(file, dict))
    file.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
