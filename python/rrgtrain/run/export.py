"""Export a checkpoint as others load it, with a card that says what it is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rrgclinical.common import json_reader
from rrgclinical.common.errors import not_written, outside_line
from rrgclinical.common.files import atomic_directory, held, remove_left
from rrgclinical.progress_bars import no_progress_bars
from rrgdata.study import ImageRef, Study
from rrgpolicy.model.adapters import is_lora
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import prompt_text, template_told
from rrgpolicy.model.whole import check_rounded
from rrgreport.model_card import Exported, model_card
from rrgtrain.errors import UserError
from rrgtrain.schema import PROMPT_STYLES
from rrgtrain.state.remembered import (
    BASE,
    INIT,
    PLACES,
    PROMPT_FILE,
    TINY,
    base_files,
    known_base,
    own_prompt,
    remembered,
    require_base,
    write_remembered,
)

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SHARD = "4GB"


def export_checkpoint(
    checkpoint: str, out: Path, dtype: str = "bf16", *, merge: bool = False
) -> Path:
    """Write the checkpoint to `out`, whole or not at all, and return that directory.

    dtype: one of DTYPES. merge: add the adapter to its base; else it is exported alone. Weights are
    rounded once, from fp32, and have the hub's names. Beside them lie tokenizer, chat template,
    image processor, a generation configuration under which nothing but greedy decoding happens
    unasked, what `eval` needs to know, and the card.

    Raises:
        UserError: no checkpoint, a directory that is there, nothing to merge, a weight beyond
            the dtype, or a disk that does not take it.
    """
    _require_new(out)
    if checkpoint == TINY:
        raise UserError("CHECKPOINT is tiny, which is built for a run; name one of its checkpoints")
    adapter = (Path(checkpoint).expanduser() / "adapter_config.json").is_file()
    if merge and not adapter:
        raise UserError(f"{checkpoint} has no adapter to merge; leave --merge out")
    start = str(Path(checkpoint).expanduser()) if adapter else checkpoint
    require_base(start)
    policy = load_policy(start)
    if merge:
        _merge(policy, start)
    check_rounded(start, policy.model, DTYPES[dtype])
    policy.model.to(DTYPES[dtype])
    try:
        remove_left(out)
        with atomic_directory(out) as partial, held(partial):
            _write(policy, partial)
            _write_trained_for(start, partial)
            alone = adapter and not merge
            card = model_card(_described(start, policy, dtype, adapter=alone))
            (partial / "README.md").write_text(card, encoding="utf-8")
            _require_new(out)  # made meanwhile, it would be replaced
    except Exception as error:
        if not isinstance(error, OSError) and not outside_line(error):
            raise
        raise UserError(f"{not_written(out, error)}; nothing is left") from error
    return out


def _require_new(out: Path) -> None:
    if os.path.lexists(out):
        raise UserError(f"--out {out} is there already; name a directory that is not")


def _described(start: str, policy: Policy, dtype: str, *, adapter: bool) -> Exported:
    trained_for, base = remembered(start), known_base(start)
    style, turn = trained_for.get("policy.prompt", "editgrpo"), None
    if style in PROMPT_STYLES:
        views = (ImageRef(Path("image"), "frontal"),) if policy.sees_images else ()
        turn = prompt_text(Study("", "", None, None, views), style=style)
    policy.chat_template_kwargs = trained_for.get("policy.chat_template_kwargs", {})
    return Exported(
        start,
        type(policy.backbone).__name__,
        dtype,
        adapter,
        None if policy.images is None else policy.images.sizes,
        turn,
        trained_for,
        base,
        random=base is not None and Path(base).name == INIT,
        template=template_told(policy, style),
    )


def _merge(policy: Policy, name: str) -> None:
    """Add the adapter to its base, in fp32."""
    both = policy.backbone.get_input_embeddings(), policy.backbone.get_output_embeddings()
    ends = [n for n, m in policy.backbone.named_modules() if is_lora(m) and m in both]
    if ends and policy.ties_head:
        raise UserError(
            f"{name} adapts {ends[0]}, and the head of its base is the embedding: merged into one "
            "it would change the other; leave --merge out"
        )
    model: Any = policy.model
    policy.go_on_with(model.merge_and_unload())


def _write(policy: Policy, directory: Path) -> None:
    model: Any = policy.model
    with no_progress_bars():
        model.save_pretrained(directory, max_shard_size=SHARD)
    policy.save_preprocessing(directory)
    template = (directory / "chat_template.jinja").read_text(encoding="utf-8")
    _rewrite(directory / "config.json", model_config)  # where there is one
    _rewrite(
        directory / "tokenizer_config.json",
        lambda c: tokenizer_config(c) | {"chat_template": template},
    )


def _write_trained_for(checkpoint: str, directory: Path) -> None:
    """Write what the policy was trained for, without places of this machine."""
    values = {k: v for k, v in remembered(checkpoint).items() if k not in PLACES}
    if (base := known_base(checkpoint)) is not None and not Path(base).is_absolute():
        values[BASE] = base
    values |= base_files(directory)
    if prompt := own_prompt(checkpoint):
        text = Path(prompt).read_text(encoding="utf-8")
        values |= {"policy.prompt": PROMPT_FILE, PROMPT_FILE: text}
    if values:
        write_remembered(directory, values)


# Whose configurations the hub has in one part, with the older names alone.
FLAT = ("qwen2", "qwen2_vl", "qwen2_5_vl")
# What a tokenizer says of the machine that saved it.
_LOADING = ("backend", "is_local", "local_files_only")


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
