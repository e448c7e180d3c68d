"""Run a model's own forward up to its head."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.utils._pytree import tree_leaves, tree_map

from rrgpolicy.model.backbone import Backbone
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.ranks import sharding

FEATURES = "mm_encoder_outputs"
"""The argument of a forward that takes the features of images in place of pixels."""


def last_hidden(backbone: Backbone, **inputs: Any) -> Tensor:
    """Return the head's input [R, L, H]; the hooks of FSDP, DDP and PEFT run."""
    with head_inputs(backbone) as taken:
        backbone.model(**{"use_cache": False, **as_named(backbone, inputs)})
    return taken[0]


@contextmanager
def head_inputs(backbone: Backbone) -> Iterator[list[Tensor]]:
    """Gather the head's inputs [R, L, H] inside, and leave it nothing to do."""
    model, inputs_of_head = backbone.backbone, list[Tensor]()

    def take(_: Any, args: tuple[Tensor, ...]) -> tuple[Tensor]:
        inputs_of_head.append(args[0])
        return (args[0][:, :0],)

    handles = [model.get_output_embeddings().register_forward_pre_hook(take)]
    # FSDP2 reduces a unit's gradients where one reaches an output of its forward, and a loop of
    # one's own does not use the logits of its root: the head's input goes out beside them.
    for unit in {backbone.model, model}:  # PEFT's, and transformers' inside it
        if isinstance(unit, FSDPModule):
            hooks: Any = unit
            handles.append(
                hooks.register_forward_hook(lambda *args: (args[-1], *inputs_of_head), prepend=True)
            )
    if in_company(backbone):
        embedding = model.get_input_embeddings()
        handles.append(embedding.register_forward_hook(lambda *args: args[-1].requires_grad_()))
    try:
        yield inputs_of_head
    finally:
        for handle in handles:
            handle.remove()


def as_named(backbone: Backbone, inputs: dict[str, Any]) -> dict[str, Any]:
    """Name the arguments of a forward as the model does."""
    model, named = backbone.backbone, dict(inputs)
    if "output_router_logits" in _taken_by(model):
        # whose loss, which nobody asks for, fails where the mask tells of more tokens than the ids
        named["output_router_logits"] = False
    if "past_key_values" in named:
        named[name_of_cache(model)] = named.pop("past_key_values")
    return named


def takes_any(backbone: Backbone) -> bool:
    """Tell if the forward hands arguments that it does not know to its layers."""
    return "kwargs" in _taken_by(backbone.backbone)


def name_of_cache(model: Any) -> str:
    """Name the forward's argument for a cache; most swallow others without a word."""
    takes = _taken_by(model)
    for name in ("past_key_values", "cache", "cache_params"):  # the second from transformers 5.24
        if name in takes:
            return name
    raise ValueError(f"the forward of a {type(model).__name__} takes no cache")


def _taken_by(model: Any) -> frozenset[str]:
    """Name the arguments of a forward."""
    return _parameters(getattr(model.forward, "__func__", model.forward))


@functools.cache
def _parameters(forward: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(forward).parameters)


def in_company(backbone: Backbone) -> bool:
    """Tell if sharded layers go back below a tower that may lack images here.

    They are gathered for a backward on all ranks or on none. Where the tower trains alone, tokens
    are given a gradient of their own, so that a rank without images goes through it too.
    """
    trains = torch.is_grad_enabled() and not backbone.vision_frozen
    return trains and sharding.is_sharded(backbone)


def with_tokens(backbone: Backbone, prompt: EncodedPrompt, member: Tensor) -> dict[str, Any]:
    """The forward's arguments for a prompt with `member` [T] behind it, pixels included."""
    tokens = {k: v.to(backbone.device) for k, v in prompt.with_tokens(member).items()}
    return tokens | pixels(backbone, prompt)


def pixels(backbone: Backbone, prompt: EncodedPrompt) -> dict[str, Tensor]:
    """The forward's arguments for a prompt's images, on the device in the model's dtype."""
    placed = {k: v.to(backbone.device, non_blocking=True) for k, v in prompt.images.items()}
    return {k: v.to(backbone.dtype) if v.is_floating_point() else v for k, v in placed.items()}


class VisionCache(OrderedDict[str, Any]):
    """Keep features by study in at most `capacity` bytes; the least recently used go first.

    A vision tower that is frozen need not compute them twice. They are a tensor or what a family
    makes of several. One that alone is larger than the capacity is not kept.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity, self.bytes = capacity, 0

    def get(self, key: str, default: Any = None) -> Any:
        if key in self:
            self.move_to_end(key)
        return super().get(key, default)

    def __setitem__(self, key: str, features: Any) -> None:
        if key in self:
            del self[key]
        if (size := _bytes(features)) > self.capacity:
            return
        while self.bytes + size > self.capacity:
            del self[next(iter(self))]
        # A view would keep the storage of everything computed beside it.
        own = tree_map(lambda t: t.clone() if isinstance(t, Tensor) else t, features)
        super().__setitem__(key, own)
        self.bytes += size

    def __delitem__(self, key: str) -> None:
        self.bytes -= _bytes(self[key])
        super().__delitem__(key)


def _bytes(features: Any) -> int:
    return sum(leaf.nbytes for leaf in tree_leaves(features) if isinstance(leaf, Tensor))


def refuse_stale(backbone: Backbone, cache: Any) -> None:
    """Raise ValueError for a cache of features whose tower trains."""
    if cache is not None and not backbone.vision_frozen:
        raise ValueError(
            "a vision cache with a vision tower that trains would go stale: freeze the tower "
            "(freeze_vision=True) or pass no cache"
        )


def features(backbone: Backbone, prompt: EncodedPrompt) -> Any:
    """Compute the features of a prompt's images, or take them from a fresh cache."""
    # the sampler's own tower call keeps embeddings there, by the key alone
    cache, key = backbone.vision_cache, f"{prompt.key}, by the family"
    own = None if cache is None else cache.get(key)
    if own is None:
        own = backbone.family.features(backbone.backbone, pixels(backbone, prompt))
        if cache is not None:
            own = tree_map(lambda t: t.detach() if torch.is_tensor(t) else t, own)
            cache[key] = own
    return own


def as_arguments(backbone: Backbone, prompts: list[EncodedPrompt]) -> dict[str, Any]:
    """The forward's arguments for the images of all prompts of a row."""
    shown = [p for p in prompts if p.images]
    if not shown:
        return {}
    if not backbone.family.joins:
        (prompt,) = shown
        return pixels(backbone, prompt)
    joined = backbone.family.join([features(backbone, p) for p in shown])
    return {FEATURES: {"image": joined}}


def unshared_hidden(
    backbone: Backbone, prompts: list[EncodedPrompt], suffixes: list[list[Tensor]]
) -> list[Tensor]:
    """Hidden states [N_b, H] of each group, each member with its whole prompt."""
    groups = []
    for prompt, members in zip(prompts, suffixes, strict=True):
        begin, parts = len(prompt.input_ids) - 1, []
        for member in members:
            if len(member):
                hidden = last_hidden(backbone, **with_tokens(backbone, prompt, member))
                parts.append(hidden[0, begin:-1])
        groups.append(torch.cat(parts) if parts else nothing(backbone))
    return groups


def nothing(backbone: Backbone) -> Tensor:
    """No hidden state: [0, H]."""
    width = backbone.embedding_shape[1]
    return torch.zeros(0, width, dtype=backbone.dtype, device=backbone.device)
