"""`Network`: a Qwen2.5-VL or Qwen2 of transformers, as the packed forward calls it."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

SHARED_ATTENTION = ("auto", "blocks", "flex", "dense")
ARCHITECTURES = {"qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration", "qwen2": "Qwen2ForCausalLM"}


@dataclass(kw_only=True)
class Network:
    """model: one of ARCHITECTURES, or a PEFT model around one.

    pad_id: fills unused places; attn: one of SHARED_ATTENTION; vision_cache: embeddings of images
    by `EncodedPrompt.key`, for a vision tower that is frozen; compute_dtype: that of the forward
    where the parameters are masters in another, None where it is theirs; left_out: ids without a
    share in the softmax, as in what a server draws from.

    What `attn` does with a shared prefix: "blocks" computes the visible blocks with SDPA, "flex"
    with FlexAttention (its backward needs a GPU), "dense" all of each row under a mask; "auto" is
    "flex" on a GPU and "blocks" on a CPU. Results are equal up to rounding.
    """

    model: nn.Module
    device: torch.device
    pad_id: int
    attn: str = "auto"
    vision_cache: MutableMapping[str, Tensor] | None = None
    compute_dtype: torch.dtype | None = None
    left_out: tuple[int, ...] = ()

    @property
    def backbone(self) -> Any:
        """The model of transformers itself, LoRA layers included."""
        model: Any = self.model
        return model.get_base_model() if hasattr(model, "get_base_model") else model

    @property
    def language_model(self) -> Any:
        """The decoder, without the head."""
        inner = self.backbone.model
        return getattr(inner, "language_model", inner)

    @property
    def visual(self) -> Any:
        """The vision tower, its merger included; None in a model of text alone."""
        return getattr(self.backbone.model, "visual", None)

    @property
    def config(self) -> Any:
        return self.backbone.config

    @property
    def text_config(self) -> Any:
        return self.config.get_text_config()

    @property
    def embedding_shape(self) -> tuple[int, int]:
        """Count the rows V of the embedding (not only of tokens) and their width."""
        embedding = self.language_model.embed_tokens
        if hasattr(embedding, "get_base_layer"):
            embedding = embedding.get_base_layer()
        # not its weight, which a copy of the policy may have given back
        return embedding.num_embeddings, embedding.embedding_dim

    @property
    def ties_head(self) -> bool:
        """Tell if the head is the embedding, whatever config.json says."""
        head: Tensor = self.backbone.lm_head.weight
        return head is self.backbone.get_input_embeddings().weight

    @property
    def image_token_id(self) -> int | None:
        """The id of an image's tokens; None in a model of text alone."""
        return getattr(self.config, "image_token_id", None)

    @property
    def dtype(self) -> torch.dtype:
        """That of the computation."""
        return self.compute_dtype or self.language_model.embed_tokens.weight.dtype

    @property
    def vision_frozen(self) -> bool:
        """No parameter of the vision tower (merger included) takes a gradient."""
        return self.visual is None or not any(p.requires_grad for p in self.visual.parameters())

    def places(self, input_ids: Tensor, grid_thw: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute a prompt's positions int64 [A, P], and int64 [P] with 1 on image tokens.

        A is 3 where the model sees images (mRoPE) and 1 in a model of text alone; see
        `mrope_positions` for grid_thw [images, 3] and what is raised.
        """
        if self.visual is None:
            return torch.arange(len(input_ids))[None], torch.zeros_like(input_ids)
        is_image = input_ids == self.config.image_token_id
        return mrope_positions(is_image, grid_thw, self.visual.spatial_merge_size), is_image.long()

    @property
    def shared_attention(self) -> str:
        """`attn`, with "auto" decided."""
        if self.attn != "auto":
            return self.attn
        # FlexAttention's kernels have no fp64.
        fast = self.device.type == "cuda" and self.dtype != torch.float64
        return "flex" if fast else "blocks"


def sees_images(config: Any) -> bool:
    """Tell whether a model of this configuration has a vision tower."""
    return config.get_text_config() is not config


def cannot_share(config: Any) -> str | None:
    """Why a model of this configuration cannot share prefixes; None where it can."""
    if config.model_type not in ARCHITECTURES:
        seen = ", ".join(getattr(config, "architectures", None) or [config.model_type])
        return f"it is a {seen}, wanted {' or '.join(ARCHITECTURES.values())}"
    text = config.get_text_config()
    if "sliding_attention" in (getattr(text, "layer_types", None) or ()):
        return "it uses sliding-window attention; set use_sliding_window to false in its config"
    if text.attention_dropout:
        return "it drops attention weights; set attention_dropout to 0 in its config"
    return None


def mrope_positions(is_image: Tensor, grid_thw: Tensor | None, merge: int) -> Tensor:
    """Temporal, height and width positions of a prompt, int64 [3, P].

    Args:
        is_image: bool [P], True on image tokens; every image is one run of them.
        grid_thw: int64 [images, 3], patches of each image in time, height and width; None
            without images.
        merge: patches per side that one token stands for.

    Text counts up on all axes alike. The tokens of an image share the temporal position at
    which it begins and take their row and column, counted from there; the text after it goes on
    at the largest position so far plus 1 (Qwen2.5-VL).

    Raises:
        ValueError: the runs of image tokens and the grids do not agree.
    """
    length = is_image.shape[0]
    grids = [] if grid_thw is None else (grid_thw // torch.tensor([1, merge, merge])).tolist()
    marks = is_image.tolist()
    pieces: list[Tensor] = []
    at = position = 0
    for t, h, w in grids:
        start = next((k for k in range(at, length) if marks[k]), length)
        pieces.append((torch.arange(start - at) + position).expand(3, -1))
        position += start - at
        count = t * h * w
        if not all(marks[start : start + count]) or start + count > length:
            raise ValueError(
                f"an image of {t} x {h} x {w} tokens begins at token {start} of {length}, where "
                "there are fewer image tokens: give one grid per run of image tokens"
            )
        index = torch.arange(count)
        # A still picture has one time step, so the temporal axis stays where the image begins.
        axes = torch.stack([index // (h * w), index // w % h, index % w])
        pieces.append(axes + position)
        position += max(h, w)
        at = start + count
    if any(marks[at:]):
        raise ValueError(
            f"image tokens after token {at}, where {len(grids)} image(s) end: give one grid per "
            "run of image tokens"
        )
    pieces.append((torch.arange(length - at) + position).expand(3, -1))
    return torch.cat(pieces, 1)
