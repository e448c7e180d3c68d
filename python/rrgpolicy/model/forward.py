"""Compute hidden states of scored tokens, each prompt once per group."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rrgclinical.common.errors import UserError
from rrgkern import (
    SharedPrefixBatch,
    attention_layout,
    gather_rows,
    linear_token_logps,
    pack_shared_prefix,
    shared_prefix_attention,
    shared_prefix_block_mask,
    shared_prefix_flex_attention,
)
from rrgpolicy.model.attention import Attend, RowGroup, RowLayout, laid_out, require_attention
from rrgpolicy.model.backbone import Backbone
from rrgpolicy.model.cache import cache_hidden
from rrgpolicy.model.own_forward import (
    as_arguments,
    in_company,
    last_hidden,
    nothing,
    refuse_stale,
    unshared_hidden,
)
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.ranks import sharding

FLEX_BLOCK = 128


def hidden_states(
    network: Backbone,
    prompts: Sequence[EncodedPrompt],
    suffixes: Sequence[Sequence[Tensor]],
    *,
    token_budget: int | None = None,
) -> tuple[Tensor, SharedPrefixBatch]:
    """Compute the last hidden state wherever a scored token is predicted, without the head.

    Args:
        network: its `model`'s mode and grad settings are left as they are; `way` says how a
            prompt is shared.
        prompts: B encoded prompts, each run once where it is shared.
        suffixes: for each prompt the G_b >= 0 members, int64 [T] ids, end of turn included.
        token_budget: tokens a row; by default one row of all, with dense attention one a group.

    Returns:
        hidden [N, H] in the model's dtype, as `Backbone.head` takes them, and the batch with
        `targets` [N] and `offsets` [S + 1], on the network's device.

    Raises:
        ValueError: see `pack_shared_prefix`; a cache with a vision tower that trains.
    """
    refuse_longer(network, prompts, suffixes)
    budget = _row(network, prompts, suffixes) if token_budget is None else token_budget
    if network.is_packed:
        return _packed(network, prompts, _in_rows(network, prompts, suffixes, budget))
    refuse_stale(network, network.vision_cache)
    ids = [prompt.input_ids for prompt in prompts]
    batch = pack_shared_prefix(ids, suffixes, token_budget=budget)
    parts: list[list[Tensor]] = [[] for _ in prompts]
    unused: list[Tensor] = []
    idle = [(0, p.one_token(), [p.input_ids[-1:]]) for p in prompts[:1]]
    for call in sharding.pad_to_lockstep(network, _calls(network, batch, prompts, suffixes), idle):
        groups, some, members = zip(*call, strict=True)
        computed = WAYS[network.way](network, [*some], [*members])
        for b, hidden in zip(groups, computed, strict=True):
            (unused if call is idle else parts[b]).append(hidden)
    hidden = torch.cat([h for group in parts for h in group] or [nothing(network)])
    for other in unused:  # its backward runs too
        hidden = hidden + 0.0 * other.sum()
    return hidden if network.scale == 1 else hidden * network.scale, batch.to(network.device)


# Groups that go through the layers together: each its number, its prompt, and its members.
Call = list[tuple[int, EncodedPrompt, list[Tensor]]]


def _calls(
    network: Backbone,
    batch: SharedPrefixBatch,
    prompts: Sequence[EncodedPrompt],
    suffixes: Sequence[Sequence[Tensor]],
) -> list[Call]:
    """Part the groups into calls that run the layers equally often: a row, a group, a member."""
    whole: Call = [(b, p, [*suffixes[b]]) for b, p in enumerate(prompts)]
    if network.way == "none":
        return [[(b, prompt, [m])] for b, prompt, members in whole for m in members if len(m)]
    if network.way == "cache" or not network.family.joins:
        return [[group] for group in whole if sum(map(len, group[2]))]
    rows: dict[int, Call] = {}
    for group, row in zip(whole, batch.row_of_group.tolist(), strict=True):
        rows.setdefault(row, []).append(group)
    return list(rows.values())


def refuse_longer(
    network: Backbone, prompts: Sequence[EncodedPrompt], suffixes: Sequence[Sequence[Tensor]]
) -> None:
    """Raise UserError for a prompt with its reports beyond what the probe has covered."""
    limit = network.probed_tokens
    if limit is None:
        return
    members = (max(map(len, group), default=0) for group in suffixes)
    sizes = (len(p.input_ids) + n for p, n in zip(prompts, members, strict=False))
    if (longest := max(sizes, default=0)) > limit:
        raise UserError(
            f"a prompt with its report has {longest} tokens, and sharing was probed up to {limit}: "
            "beyond, the model's window or rope may change it; shorten the prompts, or use "
            "policy.sharing=none, which a resume takes too"
        )


def _packed(
    network: Backbone, prompts: Sequence[EncodedPrompt], packed: SharedPrefixBatch
) -> tuple[Tensor, SharedPrefixBatch]:
    """Call the decoder with embeddings, positions and attention of our own, see `hidden_states`."""
    positions = packed.position_ids([prompt.positions for prompt in prompts])
    image_places = image_index(prompts, packed.start_of_group.tolist())
    batch = packed.to(network.device)
    if batch.targets.numel() == 0:
        return nothing(network), batch
    images = vision_embeddings(network, prompts)
    embeddings = embed(network, batch.input_ids, image_places, images)
    if in_company(network):
        embeddings.requires_grad_()
    output = network.language_model(
        inputs_embeds=embeddings,
        # [3, R, L] with images; a decoder of text alone takes its one axis as [R, L]
        position_ids=positions.squeeze(0).to(network.device),
        use_cache=False,
        **_attention(network, packed, batch, embeddings.dtype),
    )
    hidden = output.last_hidden_state.flatten(0, 1)
    # The last token of a prompt predicts the first of each of its reports.
    return gather_rows(hidden, batch.gather), batch


def _attention(
    network: Backbone, packed: SharedPrefixBatch, batch: SharedPrefixBatch, dtype: torch.dtype
) -> dict[str, Any]:
    """The language model's arguments that make it attend as `batch`, `packed` on its device."""
    rows = packed.row_of_group
    if bool((packed.group_offsets.diff() <= 1).all()) and rows.unique().numel() == rows.numel():
        # One group a row, one member each, padding on the right: plain causal attention, no mask.
        return {"attention_mask": {"full_attention": None}}
    if network.shared_attention == "dense":
        return {"attention_mask": {"full_attention": batch.attention_mask(dtype)}}
    attend = _fast_attention(network, packed, batch)
    return {"attention_mask": {"full_attention": None}, "attend": attend}


def _fast_attention(
    backbone: Backbone, packed: SharedPrefixBatch, batch: SharedPrefixBatch
) -> Attend:
    """Attend as `batch`, which is `packed` on its device, by FlexAttention or blocks of SDPA."""
    if backbone.shared_attention == "flex":
        mask = shared_prefix_block_mask(batch, block_size=FLEX_BLOCK)

        def flex(_: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
            return shared_prefix_flex_attention(query, key, value, mask, scale=scale)

        return flex
    layout = attention_layout(packed).to(backbone.device)

    def blocks(_: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        return shared_prefix_attention(query, key, value, layout, scale=scale)

    return blocks


def _row(
    network: Backbone, prompts: Sequence[EncodedPrompt], suffixes: Sequence[Sequence[Tensor]]
) -> int | None:
    """Tokens of a row that holds every group; None for a group a row."""
    if network.shared_attention == "dense" or all(len(members) <= 1 for members in suffixes):
        return None
    return _tokens_of(prompts, suffixes)


def _tokens_of(prompts: Sequence[EncodedPrompt], suffixes: Sequence[Sequence[Tensor]]) -> int:
    return sum(len(p.input_ids) for p in prompts) + sum(len(s) for m in suffixes for s in m)


def _in_rows(
    network: Backbone,
    prompts: Sequence[EncodedPrompt],
    suffixes: Sequence[Sequence[Tensor]],
    budget: int | None,
) -> SharedPrefixBatch:
    return pack_shared_prefix(
        [prompt.input_ids for prompt in prompts],
        suffixes,
        token_budget=budget,
        pad_id=network.pad_id,
        # FlexAttention's kernels are compiled once for lengths of whole blocks.
        multiple_of=FLEX_BLOCK if network.shared_attention == "flex" else 1,
    )


def _row_hidden(
    backbone: Backbone, prompts: list[EncodedPrompt], suffixes: list[list[Tensor]]
) -> list[Tensor]:
    """Hidden states [N_b, H] that predict the tokens of each group's members, from one row."""
    require_attention(backbone.text_config)  # another one would read members as one text
    packed = _in_rows(backbone, prompts, suffixes, _tokens_of(prompts, suffixes))
    batch = packed.to(backbone.device)
    positions = packed.position_ids([p.positions for p in prompts]).to(backbone.device)
    fast = (
        None if backbone.shared_attention == "dense" else _fast_attention(backbone, packed, batch)
    )
    with laid_out(RowLayout(_groups(prompts, suffixes), fast)):
        hidden = last_hidden(
            backbone,
            input_ids=batch.input_ids,
            position_ids=positions[0] if len(positions) == 1 else positions,
            # positions that begin again are taken for packed sequences unless all is visible
            attention_mask=torch.ones_like(batch.input_ids),
            **_of_tokens(batch, prompts),
            **as_arguments(backbone, prompts),
        )
    sizes = [sum(len(s) for s in members) for members in suffixes]
    return list(gather_rows(hidden[0], batch.gather).split(sizes))


def _groups(prompts: list[EncodedPrompt], suffixes: list[list[Tensor]]) -> tuple[RowGroup, ...]:
    groups: list[RowGroup] = []
    for prompt, members in zip(prompts, suffixes, strict=True):
        start = groups[-1].end if groups else 0
        lengths = tuple(len(member) for member in members)
        groups.append(RowGroup(start, len(prompt.input_ids), lengths))
    return tuple(groups)


def _of_tokens(batch: SharedPrefixBatch, prompts: list[EncodedPrompt]) -> dict[str, Any]:
    """The other arguments of each token, [1, L]: the prompts' own, and 0 in members."""
    rows = {}
    for name in prompts[0].per_token:
        values = torch.cat([p.per_token[name][0] for p in prompts]).to(batch.input_ids.device)
        row = torch.zeros_like(batch.input_ids, dtype=values.dtype)
        row[(batch.member < 0) & (batch.group >= 0)] = values
        rows[name] = row
    return rows


WAYS = {"row": _row_hidden, "cache": cache_hidden, "none": unshared_hidden}


def head_logps(
    network: Backbone, hidden: Tensor, targets: Tensor, temperature: float = 1.0, **more: bool
) -> Tensor:
    """Log-probs fp32 [N] of `targets` under logits / temperature; entropies with entropy=True."""
    weight, bias, softcap = network.head()
    options: Any = {"bias": bias, "softcap": softcap, "temperature": temperature, **more}
    out = linear_token_logps(hidden, weight, targets, **options)
    return out.logps if out.entropy is None else out.entropy


def vision_embeddings(network: Backbone, prompts: Sequence[EncodedPrompt]) -> Tensor | None:
    """Image tokens of all prompts in order, [tokens, H]; None without images.

    The tower runs once over every picture that `network.vision_cache` does not hold.
    """
    cache = network.vision_cache
    refuse_stale(network, cache)
    with_images = [p for p in prompts if p.pixel_values is not None]
    if not with_images:
        return None
    if cache is None:
        return torch.cat(_run_tower(network, with_images))
    return torch.cat([_cached(network, prompt, cache) for prompt in with_images])


def _cached(network: Backbone, prompt: EncodedPrompt, cache: MutableMapping[str, Any]) -> Tensor:
    features = cache.get(prompt.key)
    if features is None:
        # Alone: in company its last bits would depend on what the cache happened to lack.
        cache[prompt.key] = features = _run_tower(network, [prompt])[0].detach()
    return features


def _run_tower(network: Backbone, prompts: Sequence[EncodedPrompt]) -> list[Tensor]:
    tower = network.visual
    pinned = [p.pixel_values for p in prompts if p.pixel_values is not None]
    # each as it is: what the CPU concatenates or converts is pageable, and its copy waited for
    pixels = torch.cat([p.to(network.device, non_blocking=True) for p in pinned]).to(network.dtype)
    grids = [p.image_grid_thw for p in prompts if p.image_grid_thw is not None]
    output = tower(pixels, grid_thw=torch.cat(grids).to(network.device)).pooler_output
    merge = tower.spatial_merge_size**2
    return list(output.split([int(g.prod(1).sum()) // merge for g in grids]))


def image_index(prompts: Sequence[EncodedPrompt], starts: Sequence[int]) -> Tensor:
    """Locate the image tokens of all prompts in flat rows, int64 [tokens].

    starts: flat index of the first token of each prompt.
    """
    places = [
        prompt.mm_token_type_ids.nonzero().squeeze(1) + start
        for prompt, start in zip(prompts, starts, strict=True)
    ]
    return torch.cat(places) if places else torch.zeros(0, dtype=torch.int64)


def embed(network: Backbone, input_ids: Tensor, places: Tensor, images: Tensor | None) -> Tensor:
    """Token embeddings [R, L, H] with `images` [tokens, H] put at the flat `places` [tokens]."""
    embeddings = network.language_model.embed_tokens(input_ids)
    if images is None:
        return embeddings
    flat = embeddings.flatten(0, 1)
    return flat.index_copy(0, places.to(flat.device), images.to(flat)).view_as(embeddings)
