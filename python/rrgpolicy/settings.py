"""Declares the settings of policy and sampler; refuses what is no checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from rrgclinical.common.errors import UserError
from rrgclinical.common.fields import SETTINGS

# Wordings of the prompt; any other `policy.prompt` is a file.
PROMPT_STYLES = ("short", "editgrpo", "think", "grounded")


@dataclass(config=SETTINGS)
class LoraSettings:
    """Train an adapter in place of the whole model."""

    rank: int = Field(default=0, ge=0)
    """Rank of the adapter (LoRA); 0 trains the whole model."""
    alpha: float = Field(default=256.0, ge=0.0)
    """Scale of the adapter: its output is multiplied by alpha / rank."""
    dropout: float = Field(default=0.05, ge=0.0, le=0.999)
    """Dropout of the adapter's inputs, as a probability."""


@dataclass(config=SETTINGS)
class PolicySettings:
    """Choose the model that writes reports."""

    path: str = "tiny"
    """Checkpoint directory or hub name of a model that sees images, or of one of text for data
    without images; `tiny` builds a Qwen2.5-VL from the data."""
    width: int = Field(default=128, ge=16)
    """Hidden size of the tiny policy, a multiple of 64."""
    layers: int = Field(default=3, ge=1)
    """Layers of the tiny policy's language model."""
    vision_layers: int = Field(default=3, ge=1)
    """Layers of the tiny policy's vision tower."""
    vocabulary: int = Field(default=640, ge=300)
    """Entries of the tiny policy's tokenizer, which is built from the training reports."""
    warmup_steps: int = Field(default=200, ge=0)
    """Steps in which the tiny policy's vision tower learns labels before it must write."""
    warmup_lr: float = Field(default=1e-3, ge=0.0)
    """Learning rate of these steps."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Seed of the weights that are drawn: those of the tiny policy, and an adapter's."""
    freeze_vision: bool = False
    """Keep the vision tower as it is."""
    vision_cache_mib: int = Field(default=1024, ge=0)
    """Memory in MiB for embeddings of images, kept while the vision tower is frozen."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass in place of keeping them."""
    prompt: str = "short"
    """Wording of the prompt: `short`, `editgrpo`, `grounded` (boxes), `think` (MRG-R1's <think> and
    <report> blocks); anything else is a file with placeholders (`rrgpolicy/model/template.py`)."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Values that the chat template reads, by name; `enable_thinking` is false where it reads that,
    and true where `policy.prompt=think`, unless it is set here."""
    lora: LoraSettings = Field(default_factory=LoraSettings)
    """An adapter in place of the whole model."""
    min_pixels: int | None = Field(default=None, ge=1)
    """Smallest area of an image in pixels, smaller ones are enlarged; null as the checkpoint
    says."""
    max_pixels: int | None = Field(default=None, ge=1)
    """Largest area of an image in pixels, larger ones are reduced; null as the checkpoint says."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the computation; what trains is kept in fp32 beside it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the model; `auto` is CUDA where there is a GPU."""
    attn: Literal["auto", "blocks", "flex", "dense"] = "auto"
    """Attention over a shared prefix, see `rrgpolicy/model/README.md`."""
    sharing: Literal["auto", "row", "cache", "none"] = "auto"
    """How a group shares its prompt: in one packed row, by a prefix cache, or not at all; `auto`
    takes the first that a probe finds exact for the model."""
    vision_attn: Literal["auto", "packed", "sdpa", "flash_attention_2"] = "auto"
    """Attention of the vision tower: `packed` takes a layer's windows together, `sdpa` one by one;
    `auto` is flash-attn where it is installed and can run, else `packed`."""


def refuse_missing(name: str) -> None:
    """UserError for a path that can be no checkpoint; a hub name passes."""
    path = Path(name).expanduser()
    looks_local = path.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1
    # runs/typo would pass for a hub name, but nobody's hub name begins with a folder that is here,
    # nor with the one that runs are written to
    looks_local = looks_local or path.parent.is_dir() or name.startswith("runs/")
    if path.is_dir():
        if not any((path / f).is_file() for f in ("config.json", "adapter_config.json")):
            own = sorted({str(f.parent) for f in path.glob("checkpoints/*/*config.json")})
            such = f" such as {' or '.join(own)}" if own else ""
            raise UserError(f"{name} holds no config.json; name a checkpoint directory{such}")
    elif path.exists():
        raise UserError(f"{name} is a file; name the checkpoint directory it lies in")
    elif looks_local:
        raise UserError(
            f"no such directory: {name}; name a checkpoint directory or a hub model such as "
            "Qwen/Qwen2.5-VL-3B-Instruct"
        )
