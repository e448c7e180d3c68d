"""`Family`: the parts and inputs of a model, as most of transformers has them."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rrgpolicy.model.adapters import names_of_experts
from rrgpolicy.model.families.images import ImageRule


class Family:
    """The defaults; a module of this folder overrides what differs and has one as FAMILY.

    packed: the model's decoder is called with embeddings and positions of our own, by
    `model/forward.py`, in place of the model's forward. joins: features of several prompts can be
    handed to one forward, and several groups stand in one row. windows: the tower attends within
    windows of unequal size, which `packed_windows` takes at once. embedded: vLLM is given features
    of the trainer's tower; else pictures, and the tower's weights. images: how they are prepared.
    carried: what the decoder reads of what the tower gives.
    """

    packed = False
    windows = False
    embedded = False
    carried: tuple[str, ...] = ("pooler_output", "deepstack_features")

    def __init__(self, *, joins: bool = True, images: type[ImageRule] = ImageRule) -> None:
        self.joins, self.images = joins, images

    def decoder(self, model: Any) -> Any:
        """The module whose `.layers` are sharded and adapted."""
        decoder = model.get_decoder()
        if hasattr(decoder, "layers"):
            return decoder
        # BLIP-2's and Llama 4's is a model with a head
        inner = getattr(decoder, "get_decoder", lambda: None)()
        within = (inner, getattr(decoder, "model", None))
        return next((module for module in within if hasattr(module, "layers")), decoder)

    def lora_targets(self, model: Any) -> list[str] | str:
        """Name the modules that take an adapter: each Linear in the decoder's layers.

        What routes is none: it chooses among experts or weighs one, and an adapter on it trains
        badly. Nor are those beside experts whose names PEFT takes for the experts' own, nor those
        whose weight alone goes into a kernel.
        """
        layers = self.decoder(model).layers
        linear = {n: m for n, m in layers.named_modules() if isinstance(m, nn.Linear)}
        inside = {id(m) for n, m in linear.items() if not _routes(n, m)}
        inside -= {id(m) for parent in layers.modules() for m in _as_weights(parent)}
        names = [n for n, m in model.named_modules() if id(m) in inside]
        taken = names_of_experts(model, {n.rsplit(".", 1)[-1] for n in names})
        return [n for n in names if n.rsplit(".", 1)[-1] not in taken]

    def positions(self, model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
        """Place a prompt's tokens, int64 [A, P]: A is 3 for mRoPE, else 1.

        inputs: the forward's arguments for one prompt, input_ids [1, P].
        """
        ids, inner = inputs["input_ids"], getattr(model, "model", None)
        find = getattr(inner, "get_rope_index", None)
        if find is None:
            return torch.arange(ids.shape[1])[None]
        takes = inspect.signature(find).parameters
        if "mm_token_type_ids" in takes:  # which a prompt of text alone may lack
            inputs = {"mm_token_type_ids": (ids == model.config.image_token_id).long(), **inputs}
        positions: Tensor = find(**{k: v for k, v in inputs.items() if k in takes})[0]
        return positions[:, 0].cpu()

    def features(self, model: Any, images: Mapping[str, Tensor]) -> Any:
        """Run tower and projector over the images of one prompt.

        images: the arguments of the forward that are neither ids nor of tokens.
        """
        # Janus has it within alone, and VideoLLaMA 3 hands on what its signature does not name
        inner = getattr(model, "model", None)
        find = getattr(inner, "get_image_features", None) or model.get_image_features
        takes = inspect.signature(find).parameters
        chosen = {k: v for k, v in images.items() if k in takes}
        output = find(**chosen, return_dict=True)
        # not the tower's states
        values = {name: getattr(output, name, None) for name in self.carried}
        return type(output)(**{name: value for name, value in values.items() if value is not None})

    def join(self, features: Sequence[Any]) -> Any:
        """Join the features of several prompts to those of a row."""
        first = features[0]
        fields = {"pooler_output": _joined([f.pooler_output for f in features])}
        if "deepstack_features" in first:  # one tensor a layer
            layers = zip(*(f.deepstack_features for f in features), strict=True)
            fields["deepstack_features"] = [_joined(layer) for layer in layers]
        return type(first)(**fields)


def _routes(name: str, linear: nn.Linear) -> bool:
    """Tell if a Linear weighs a whole block by one number, or lies in a gate or a router."""
    parts = name.split(".")
    return linear.out_features == 1 or any(p == "gate" or "router" in p.split("_") for p in parts)


def _as_weights(parent: nn.Module) -> list[nn.Module]:
    """List the children whose weight the module's own code reads, past what stands on them.

    Mamba's kernels take the weight of `out_proj`, and an adapter on it would do nothing.
    """
    children = [(n, m) for n, m in parent.named_children() if isinstance(m, nn.Linear)]
    kind: Any = type(parent)
    source = source_of(kind) if children else ""
    reads = r"self\.{}\.weight\b(?!\.(?:dtype|device|shape))"
    return [m for n, m in children if re.search(reads.format(re.escape(n)), source)]


@functools.cache
def source_of(kind: Any) -> str:
    """Read the code of a class; empty where none is to be had."""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # a class that no file holds
        return ""


def _joined(parts: Sequence[Any]) -> Any:
    """One tensor of tensors, or one list of lists of them."""
    if torch.is_tensor(parts[0]):
        return torch.cat(list(parts))
    return [image for part in parts for image in part]
