"""`Backbone`: a model of transformers that predicts a next token, as the forwards call it."""

from __future__ import annotations

import inspect
import re
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from rrgpolicy.model.attention import ATTENTION
from rrgpolicy.model.families import Family, family_of, module_of
from rrgpolicy.model.families.family import source_of
from rrgpolicy.ranks.layout import Layout

SHARED_ATTENTION = ("auto", "blocks", "flex", "dense")
SHARINGS = ("row", "cache", "none")


class Head(NamedTuple):
    """Hold weight [V, H], bias [V] or None, and soft cap.

    They turn hidden states into logits, `softcap * tanh(z / softcap)` of z = hidden @ weight.T +
    bias. Hidden states are already multiplied by the family's scale, and so is the bias.
    """

    weight: Tensor
    bias: Tensor | None
    softcap: float | None


@dataclass(kw_only=True)
class Backbone:
    """model: one of transformers, or a PEFT model around one.

    pad_id: fills unused places; attn: one of SHARED_ATTENTION; vision_cache: features of images
    by `EncodedPrompt.key`, for a vision tower that is frozen; compute_dtype: that of the forward
    where the parameters are masters in another, None where it is theirs; left_out: ids without a
    share in the softmax, as in what a server draws from; sharing: one of SHARINGS, and
    probed_tokens: the longest sequence for which it is known to be exact, both from the probe;
    layout: how the model's weights lie, in common with other policies of the same model.

    What `attn` does with a shared prefix: "blocks" computes the visible blocks with SDPA, "flex"
    with FlexAttention (its backward needs a GPU), "dense" all that the model's own mask covers;
    "auto" is "flex" on a GPU and "blocks" on a CPU. Results are equal up to rounding.
    """

    model: nn.Module
    device: torch.device
    pad_id: int
    attn: str = "auto"
    vision_cache: MutableMapping[str, Any] | None = None
    compute_dtype: torch.dtype | None = None
    left_out: tuple[int, ...] = ()
    sharing: str | None = None
    probed_tokens: int | None = None
    layout: Layout = field(default_factory=Layout)

    def go_on_with(self, model: nn.Module, layout: Layout | None = None) -> None:
        """Take another model in place of its own.

        layout: the model's; None for one that was just made.
        """
        self.model, self.layout = model, layout or Layout()

    @property
    def backbone(self) -> Any:
        model: Any = self.model
        return model.get_base_model() if hasattr(model, "get_base_model") else model

    @cached_property
    def family(self) -> Family:
        """Find what the model's family does otherwise than most."""
        return family_of(self.config)

    @property
    def language_model(self) -> Any:
        """The decoder, without the head; ValueError where its layers have another name."""
        decoder = self.family.decoder(self.backbone)
        if not hasattr(decoder, "layers"):
            raise ValueError(
                f"the decoder of a {type(self.backbone).__name__} has no `layers`: name a model "
                f"that has, or say where they are in model/families/{module_of(self.config)}.py"
            )
        return decoder

    @property
    def visual(self) -> Any:
        """The module of a family whose tower and projector are one; None elsewhere."""
        return getattr(self.backbone.model, "visual", None)

    @property
    def config(self) -> Any:
        return self.backbone.config

    @property
    def text_config(self) -> Any:
        return self.config.get_text_config()

    @property
    def sees_images(self) -> bool:
        return sees_images(self.config)

    def eyes(self) -> list[tuple[str, nn.Parameter]]:
        """Name the parameters of tower and projector: all that are neither decoder nor head."""
        if not self.sees_images:
            return []
        model = self.backbone
        others = (self.language_model, model.get_output_embeddings(), model.get_input_embeddings())
        elsewhere = {id(p) for module in others for p in module.parameters()}
        return [(n, p) for n, p in model.named_parameters() if id(p) not in elsewhere]

    def head(self) -> Head:
        """The model's own head.

        Raises ValueError for one with an adapter or of quantised weights.
        """
        module = self.backbone.get_output_embeddings()
        if not isinstance(module, nn.Linear) or not module.weight.is_floating_point():
            whose = "PEFT's" if type(module).__module__.startswith("peft.") else "a"
            raise ValueError(
                f"the head is {whose} {type(module).__name__}, which is more than one weight "
                "matrix: leave lm_head without adapter and quantisation, and where the head is "
                "tied to the embedding without trainable_token_indices too"
            )
        weight: Tensor = module.weight
        bias: Tensor | None = module.bias
        scale = self.scale
        if bias is not None and scale != 1:
            bias = bias * scale
        if self.left_out:
            bias = torch.zeros_like(weight[:, 0]) if bias is None else bias.detach().clone()
            bias[list(self.left_out)] = -torch.inf
        return Head(weight, bias, self._cap)

    @property
    def _cap(self) -> float | None:
        """The bound of logits, Gemma's or RecurrentGemma's: not all around a decoder apply it."""
        kinds = _with_forwards(self.backbone)
        for name in ("final_logit_softcapping", "logits_soft_cap"):
            cap: float | None = getattr(self.text_config, name, None)
            # be it to make a layer of or as a string
            if cap and any(name in source_of(kind) for kind in kinds):
                return cap
        return None

    def _of_logits(self, name: str) -> float | None:
        """Read a factor of logits where the model's forward does: not all around a decoder do."""
        forwards = (vars(kind)["forward"] for kind in _with_forwards(self.backbone))
        reads = any(name in inspect.unwrap(forward).__code__.co_names for forward in forwards)
        return getattr(self.text_config, name, None) if reads else None

    @property
    def scale(self) -> float:
        """The factor of logits that the configuration names: 1 / Granite's, or another's."""
        factor = float(self._of_logits("logits_scaling") or 1.0)
        if not any(map(_multiplies, _with_forwards(self.backbone))):
            factor = 1.0 / factor
        for name in ("logit_scale", "lm_head_multiplier", "output_multiplier"):
            factor *= float(self._of_logits(name) or 1.0)
        return factor

    @property
    def embedding_shape(self) -> tuple[int, int]:
        """Count the rows V of the embedding (not only of tokens) and their width."""
        embedding = self.backbone.get_input_embeddings()
        if hasattr(embedding, "get_base_layer"):
            embedding = embedding.get_base_layer()
        embedding = getattr(embedding, "original_module", embedding)  # PEFT's trainable tokens
        # not its weight, which a copy of the policy may have given back
        return embedding.num_embeddings, embedding.embedding_dim

    @property
    def ties_head(self) -> bool:
        """Tell if the head is the embedding, whatever config.json says."""
        head: Tensor = self.backbone.get_output_embeddings().weight
        return head is self.backbone.get_input_embeddings().weight

    @property
    def image_token_id(self) -> int | None:
        """The id of an image's tokens; None in a model of text alone."""
        token: int | None = getattr(self.config, "image_token_id", None)
        return getattr(self.config, "image_token_index", None) if token is None else token

    @property
    def dtype(self) -> torch.dtype:
        return self.compute_dtype or self.backbone.get_input_embeddings().weight.dtype

    @property
    def vision_frozen(self) -> bool:
        """No parameter of the vision tower (projector included) takes a gradient."""
        return not any(p.requires_grad for _, p in self.eyes())

    @property
    def shared_attention(self) -> str:
        """`attn`, with "auto" decided."""
        if self.attn != "auto":
            return self.attn
        # FlexAttention's kernels have no fp64.
        fast = self.device.type == "cuda" and self.dtype != torch.float64
        return "flex" if fast else "blocks"

    @property
    def is_packed(self) -> bool:
        """Tell if `model/forward.py` calls the decoder itself, see `Family.packed`.

        Its attention is SDPA, knows no window and drops no weight.
        """
        return self.decodes_packed and self.way == "row"

    @property
    def decodes_packed(self) -> bool:
        """Tell if its decoder can be called so, whatever way prompts are shared in training."""
        text = self.text_config
        windows = "sliding_attention" in (getattr(text, "layer_types", None) or ())
        other = windows or bool(getattr(text, "attention_dropout", 0.0))
        plain = text._attn_implementation == ATTENTION and not other
        return self.family.packed and plain

    @property
    def way(self) -> str:
        """Share prompts as the probe found, or else as is right for any."""
        return self.sharing or ("row" if self.family.packed else "none")


@cache
def _multiplies(kind: type) -> bool:
    """Tell if a class has `logits_scaling` from Granite and multiplies, as HyperCLOVA X's."""
    return re.search(r"\* [\w.]+\.logits_scaling", source_of(kind)) is not None


def _with_forwards(module: nn.Module) -> list[type]:
    """List the classes of a module that have a forward; FSDP puts one of its own before them."""
    return [kind for kind in type(module).__mro__ if "forward" in vars(kind)]


def sees_images(config: Any) -> bool:
    """Tell whether a model of this configuration has a vision tower."""
    return config.get_text_config() is not config


def architecture(config: Any) -> str | None:
    """Name the class that transformers' auto classes load, the one for images first."""
    for names in (MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        names_of_kind = names.get(config.model_type)
        if names_of_kind is not None:
            return names_of_kind if isinstance(names_of_kind, str) else str(names_of_kind[0])
    return None


def refuse_other_kinds(config: Any) -> None:
    """Raise ValueError for a model that is no decoder over one sequence."""
    parts = (config, config.get_text_config())
    if any(getattr(part, "is_encoder_decoder", False) for part in parts):
        raise ValueError(f"a {config.model_type} is an encoder-decoder; name a decoder-only model")
    layers = getattr(config.get_text_config(), "cross_attention_layers", None)
    if layers or getattr(config.get_text_config(), "add_cross_attention", False):
        raise ValueError(
            f"a {config.model_type} reads images by cross-attention; name a model that has them as "
            "tokens of its prompt"
        )


def window_of(text: Any) -> int | None:
    """Count the tokens that the layers with the widest window see; None without windows.

    Doge's and DeepSeek's choose so many among all.
    """
    kinds = set(getattr(text, "layer_types", None) or ())
    names = ["keep_window_size", "index_topk"]
    if not kinds or any(re.search("sliding|chunked", kind) for kind in kinds):
        names += ["sliding_window", "sliding_window_size", "attention_chunk_size"]
    sizes = (getattr(text, name, None) for name in names)
    return max((s for s in sizes if isinstance(s, int)), default=None)


def turn_of(text: Any) -> int | None:
    """Count the tokens that rope turns by their place alone; None for any.

    Beyond, all keys of a forward turn otherwise, by its longest sequence: those of a shorter one
    beside it too, and not those of a cache.
    """
    rope = getattr(text, "rope_parameters", None) or {}
    parts = [rope, *(part for part in rope.values() if isinstance(part, dict))]
    ropes = [part for part in parts if part.get("rope_type") in ("longrope", "dynamic")]
    lengths = [part.get("original_max_position_embeddings") for part in ropes]
    lengths += [getattr(text, "max_position_embeddings", None) for _ in ropes]
    # a cache's members have two tokens at least
    return min((n - 1 for n in lengths if isinstance(n, int)), default=None)
