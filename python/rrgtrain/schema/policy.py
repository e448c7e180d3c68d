"""Declares the settings of the policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from rrgclinical.common.fields import at_least, one_of

# Wordings of the prompt; any other `policy.prompt` is a file.
PROMPT_STYLES = ("short", "editgrpo", "think")


@dataclass
class LoraSettings:
    """Train an adapter in place of the whole model."""

    rank: int = at_least(0, 0)
    """Rank of the adapter (LoRA); 0 trains the whole model."""
    alpha: float = at_least(256.0, 0.0)
    """Scale of the adapter: its output is multiplied by alpha / rank."""
    dropout: float = at_least(0.05, 0.0, 0.999)
    """Dropout of the adapter's inputs, as a probability."""


@dataclass
class PolicySettings:
    """Choose the model that writes reports."""

    path: str = "tiny"
    """Checkpoint directory or hub name of a model that sees images, or of one of text for data
    without images; `tiny` builds a Qwen2.5-VL from the data."""
    width: int = at_least(128, 16)
    """Hidden size of the tiny policy, a multiple of 64."""
    layers: int = at_least(3, 1)
    """Layers of the tiny policy's language model."""
    vision_layers: int = at_least(3, 1)
    """Layers of the tiny policy's vision tower."""
    vocabulary: int = at_least(640, 300)
    """Entries of the tiny policy's tokenizer, which is built from the training reports."""
    warmup_steps: int = at_least(200, 0)
    """Steps in which the tiny policy's vision tower learns labels before it must write."""
    warmup_lr: float = at_least(1e-3, 0.0)
    """Learning rate of these steps."""
    seed: int = at_least(0, 0, 2**63 - 1)
    """Seed of the weights that are drawn: those of the tiny policy, and an adapter's."""
    freeze_vision: bool = False
    """Keep the vision tower as it is."""
    vision_cache_mib: int = at_least(1024, 0)
    """Memory in MiB for embeddings of images, kept while the vision tower is frozen."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass in place of keeping them."""
    prompt: str = "short"
    """Wording of the prompt: `short`, `editgrpo`, or `think`, which asks for <think> and <report>
    blocks (MRG-R1); anything else is a file with placeholders (`policy/template.py`)."""
    lora: LoraSettings = field(default_factory=LoraSettings)
    """An adapter in place of the whole model."""
    min_pixels: int | None = None
    """Smallest area of an image in pixels, smaller ones are enlarged; null as the checkpoint
    says."""
    max_pixels: int | None = None
    """Largest area of an image in pixels, larger ones are reduced; null as the checkpoint says."""
    dtype: str = one_of("float32", "bfloat16")
    """Type of the computation; what trains is kept in fp32 beside it."""
    device: str = one_of("auto", "cpu", "cuda")
    """Device of the model; `auto` is CUDA where there is a GPU."""
    attn: str = one_of("auto", "blocks", "flex", "dense")
    """Attention over a shared prefix, see `policy/README.md`."""
    sharing: str = one_of("auto", "row", "cache", "none")
    """How a group shares its prompt: in one packed row, by a prefix cache, or not at all; `auto`
    takes the first that a probe finds exact for the model."""
    vision_attn: str = one_of("auto", "packed", "sdpa", "flash_attention_2")
    """Attention of the vision tower: `packed` takes a layer's windows together, `sdpa` one by one;
    `auto` is flash-attn where it is installed and can run, else `packed`."""
