"""`shared_prefix_logps`: log-probs of groups of completions, for a training loop of one's own.

The model is one of transformers, loaded as ever; nothing of the trainer is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rrgkern import linear_token_logps
from rrgtrain.policy.attention import ATTENTION
from rrgtrain.policy.forward import VisionCache, head, hidden_states
from rrgtrain.policy.network import (
    ARCHITECTURES,
    SHARED_ATTENTION,
    Network,
    cannot_share,
    sees_images,
)
from rrgtrain.policy.prompt import EncodedPrompt

# What a processor returns; mm_token_type_ids are found again from the ids.
OF_PROMPT = (
    "input_ids",
    "attention_mask",
    "pixel_values",
    "image_grid_thw",
    "mm_token_type_ids",
    "key",
)


class SharedPrefixLogps(NamedTuple):
    """Log-probs of N tokens of S completions, in order, on the model's device.

    logps and entropy fp32 [N] (entropy None unless asked for); targets int64 [N];
    offsets int64 [S + 1] and group_offsets int64 [B + 1], as rrgkern's losses take them.
    """

    logps: Tensor
    entropy: Tensor | None
    targets: Tensor
    offsets: Tensor
    group_offsets: Tensor


def shared_prefix_logps(
    model: nn.Module,
    prompts: Sequence[Mapping[str, Any]],
    completions: Sequence[Sequence[Tensor]],
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    token_budget: int | None = None,
    attn: str = "auto",
    vision_cache: VisionCache | None = None,
) -> SharedPrefixLogps:
    """Log-probs of every completion token, each prompt and its images computed once per group.

    Equal, with all gradients, to a forward of each `[prompt | completion]` on its own, up to
    rounding (and to LoRA's dropout, whose mask a group's prompt shares).

    Args:
        model: Qwen2_5_VLForConditionalGeneration or Qwen2ForCausalLM, or a PEFT model around one;
            its mode, gradients and gradient checkpointing are used as they are. Its attention
            must be "sdpa"; it is set to one that is SDPA too wherever no prefix is shared.
        prompts: for each of B groups what a processor returns for its one prompt: `input_ids`
            int [P] or [1, P], image tokens expanded; `attention_mask` if it was padded;
            `pixel_values` and `image_grid_thw` where it has images; and, for `vision_cache`, a
            string `key` that names them.
        completions: for each group its G_b >= 0 completions, int64 [T] ids, every one scored.
        temperature: divides the logits.
        entropy: also the entropy of every token's distribution, differentiable.
        token_budget: tokens per row; all groups share one row by default.
        attn: see `Network`.
        vision_cache: image embeddings by `key`, for a vision tower that is frozen.

    Raises:
        ValueError: a model that cannot share a prompt, with the reason; prompts and completions
            that do not fit; see also `pack_shared_prefix`.
    """
    network = _network(model, attn)
    encoded = [_encoded(network, p, b, vision_cache is not None) for b, p in enumerate(prompts)]
    hidden, batch = hidden_states(
        network,
        encoded,
        [[ids.cpu() for ids in group] for group in completions],
        token_budget=token_budget,
        vision_cache=vision_cache,
    )
    weight, bias = head(network)
    out = linear_token_logps(
        hidden, weight, batch.targets, bias=bias, temperature=temperature, entropy=entropy
    )
    return SharedPrefixLogps(
        out.logps, out.entropy, batch.targets, batch.offsets, batch.group_offsets
    )


def _network(model: nn.Module, attn: str) -> Network:
    if attn not in SHARED_ATTENTION:
        raise ValueError(f"attn={attn!r}: use one of {', '.join(SHARED_ATTENTION)}")
    adapters: Any = getattr(model, "peft_config", {})
    if any(config.is_prompt_learning for config in adapters.values()):
        raise ValueError("prompt-learning adapters prepend tokens of their own: use LoRA")
    backbone: Any = model.get_base_model() if adapters else model  # type: ignore[operator]
    if type(backbone).__name__ not in ARCHITECTURES.values():
        raise ValueError(
            f"a {type(backbone).__name__} cannot share prefixes: wanted a "
            f"{' or a '.join(ARCHITECTURES.values())} itself, or a PEFT model around one (under "
            "DistributedDataParallel, wrap a module whose forward calls this function)"
        )
    if reason := cannot_share(backbone.config):
        raise ValueError(f"this {type(backbone).__name__} cannot share prefixes: {reason}")
    text = backbone.config.get_text_config()
    if text._attn_implementation == "sdpa":
        # For good: a backward pass with gradient checkpointing looks it up once more.
        within = {"text_config": ATTENTION} if sees_images(backbone.config) else ATTENTION
        backbone.set_attn_implementation(within)
    elif text._attn_implementation != ATTENTION:
        raise ValueError(
            f"the model's attention is {text._attn_implementation!r}: load it with "
            "attn_implementation='sdpa'"
        )
    device = backbone.get_input_embeddings().weight.device
    return Network(model=model, device=device, pad_id=0, attn=attn)


def _encoded(
    network: Network, prompt: Mapping[str, Any], number: int, cached: bool
) -> EncodedPrompt:
    if unknown := sorted(prompt.keys() - set(OF_PROMPT)):
        raise ValueError(f"prompt {number} has {', '.join(unknown)}: give {', '.join(OF_PROMPT)}")
    given = torch.as_tensor(prompt["input_ids"]).cpu()
    ids = given.squeeze(0) if given.dim() == 2 else given
    if ids.dim() != 1:
        raise ValueError(
            f"prompt {number}: input_ids of shape {tuple(given.shape)}: give one prompt, [P] or "
            "[1, P]"
        )
    if (mask := prompt.get("attention_mask")) is not None:
        ids = ids[torch.as_tensor(mask).cpu().view_as(ids).bool()]
    pixels, grid = prompt.get("pixel_values"), prompt.get("image_grid_thw")
    if (pixels is None) != (grid is None):
        raise ValueError(f"prompt {number}: give both pixel_values and image_grid_thw, or neither")
    if pixels is not None and network.visual is None:
        raise ValueError(f"prompt {number} has images, and the model has no vision tower")
    if pixels is not None and cached and not prompt.get("key"):
        raise ValueError(f"prompt {number} has images without a key: the cache keeps them by it")
    ids = ids.long()
    grid = None if grid is None else grid.cpu()
    positions, is_image = network.places(ids, grid)
    return EncodedPrompt(ids, positions, pixels, grid, is_image, key=prompt.get("key", ""))
