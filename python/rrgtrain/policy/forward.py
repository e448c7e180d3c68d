"""Hidden states of scored tokens, each prompt computed once for all the members of its group."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rrgkern import (
    SharedPrefixBatch,
    attention_layout,
    pack_shared_prefix,
    shared_prefix_attention,
)
from rrgtrain.policy.attention import require_attention
from rrgtrain.policy.policy import Policy
from rrgtrain.policy.prompt import EncodedPrompt

VisionCache = MutableMapping[str, Tensor]


def hidden_states(
    policy: Policy,
    prompts: Sequence[EncodedPrompt],
    suffixes: Sequence[Sequence[Tensor]],
    *,
    token_budget: int | None = None,
    vision_cache: VisionCache | None = None,
) -> tuple[Tensor, SharedPrefixBatch]:
    """The last hidden state at every place that predicts a scored token; the head is not applied.

    Args:
        policy: its `model`'s mode and grad settings are left as they are.
        prompts: B encoded prompts, each run once: one pass of the vision tower, one of the text.
        suffixes: for each prompt the G_b >= 0 members, int64 [T] ids, end of turn included.
        token_budget: tokens per row, see `pack_shared_prefix`.
        vision_cache: embeddings by `EncodedPrompt.key`; only with a frozen vision tower. The
            caller keeps it as long as the tower does not change.

    Returns:
        hidden [N, H] in the model's dtype, and the batch with `targets` [N] and `offsets`
        [S + 1], on the policy's device.

    Raises:
        ValueError: see `pack_shared_prefix`; a cache with a vision tower that trains.
    """
    require_attention(policy.config)
    packed = pack_shared_prefix(
        [prompt.input_ids for prompt in prompts],
        suffixes,
        token_budget=token_budget,
        pad_id=policy.pad_id,
    )
    positions = packed.position_ids([prompt.positions for prompt in prompts])
    image_places = image_index(prompts, packed.start_of_group.tolist())
    batch = packed.to(policy.device)
    if batch.targets.numel() == 0:
        width = policy.config.text_config.hidden_size
        return torch.zeros(0, width, dtype=policy.dtype, device=policy.device), batch
    embeddings = embed(
        policy, batch.input_ids, image_places, vision_embeddings(policy, prompts, vision_cache)
    )
    output = policy.language_model(
        inputs_embeds=embeddings,
        position_ids=positions.to(policy.device),
        use_cache=False,
        **_attention(policy, packed, batch, embeddings.dtype),
    )
    hidden = output.last_hidden_state.flatten(0, 1)
    return hidden.index_select(0, batch.gather), batch


def _attention(
    policy: Policy, packed: SharedPrefixBatch, batch: SharedPrefixBatch, dtype: torch.dtype
) -> dict[str, Any]:
    """The language model's arguments that make it attend as `batch`, `packed` on its device."""
    if bool((packed.group_offsets.diff() <= 1).all()) and _one_group_a_row(packed):
        # One member each, padding on the right: plain causal attention, without any mask.
        return {"attention_mask": {"full_attention": None}}
    if policy.attn == "dense":
        return {"attention_mask": {"full_attention": batch.attention_mask(dtype)}}
    layout = attention_layout(packed).to(policy.device)

    def attend(_: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        return shared_prefix_attention(query, key, value, layout, scale=scale)

    return {"attention_mask": {"full_attention": None}, "attend": attend}


def _one_group_a_row(packed: SharedPrefixBatch) -> bool:
    return packed.row_of_group.unique().numel() == packed.row_of_group.numel()


def head(policy: Policy) -> tuple[Tensor, Tensor | None]:
    """Weight [V, H] and bias ([V] or None) that turn hidden states into logits."""
    module = policy.backbone.lm_head
    return module.weight, module.bias


def vision_embeddings(
    policy: Policy, prompts: Sequence[EncodedPrompt], cache: VisionCache | None = None
) -> Tensor | None:
    """Image tokens of all prompts in order, [tokens, H]; None without images.

    The tower runs once over every picture that the cache (`policy.vision_cache` if None) does not
    hold.
    """
    cache = policy.vision_cache if cache is None else cache
    if cache is not None and not policy.vision_frozen:
        raise ValueError(
            "a vision cache with a vision tower that trains would go stale: freeze the tower "
            "(freeze_vision=True) or pass no cache"
        )
    with_images = [p for p in prompts if p.pixel_values is not None]
    if not with_images:
        return None
    if cache is None:
        return torch.cat(_run_tower(policy, with_images))
    return torch.cat([_cached(policy, prompt, cache) for prompt in with_images])


def _cached(policy: Policy, prompt: EncodedPrompt, cache: VisionCache) -> Tensor:
    found = cache.get(prompt.key)
    if found is None:
        # Alone: in company its last bits would depend on what the cache happened to lack.
        found = _run_tower(policy, [prompt])[0].detach()
        cache[prompt.key] = found
    return found


def _run_tower(policy: Policy, prompts: Sequence[EncodedPrompt]) -> list[Tensor]:
    tower = policy.visual
    pixels = torch.cat([p.pixel_values for p in prompts if p.pixel_values is not None])
    grids = [p.image_grid_thw for p in prompts if p.image_grid_thw is not None]
    grid = torch.cat(grids)
    output = tower(
        pixels.to(policy.device, policy.dtype), grid_thw=grid.to(policy.device)
    ).pooler_output
    merge = tower.spatial_merge_size**2
    return list(output.split([int(g.prod(1).sum()) // merge for g in grids]))


def image_index(prompts: Sequence[EncodedPrompt], starts: Sequence[int]) -> Tensor:
    """Where the image tokens of all prompts lie in flat rows, int64 [tokens].

    starts: flat index of the first token of each prompt.
    """
    places = [
        prompt.mm_token_type_ids.nonzero().squeeze(1) + start
        for prompt, start in zip(prompts, starts, strict=True)
    ]
    return torch.cat(places) if places else torch.zeros(0, dtype=torch.int64)


def embed(policy: Policy, input_ids: Tensor, places: Tensor, images: Tensor | None) -> Tensor:
    """Token embeddings [R, L, H] with `images` [tokens, H] put at the flat `places` [tokens]."""
    embeddings = policy.language_model.embed_tokens(input_ids)
    if images is None:
        return embeddings
    flat = embeddings.flatten(0, 1)
    return flat.index_copy(0, places.to(flat.device), images.to(flat)).view_as(embeddings)
