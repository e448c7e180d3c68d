"""Run rows `[prompt | o_1 | ... | o_G]` through the model's own forward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern import SharedPrefixBatch, gather_rows, pack_shared_prefix
from rrgpolicy.model.attention import RowGroup, RowLayout, laid_out, require_attention
from rrgpolicy.model.backbone import Backbone
from rrgpolicy.model.fast_attention import FLEX_BLOCK, fast_attention
from rrgpolicy.model.own_forward import as_arguments, last_hidden
from rrgpolicy.model.prompt import EncodedPrompt


def row_hidden(
    backbone: Backbone, prompts: list[EncodedPrompt], suffixes: list[list[Tensor]]
) -> list[Tensor]:
    """Hidden states [N_b, H] that predict the tokens of each group's members, from one row."""
    require_attention(backbone.text_config)  # another one would read members as one text
    total = sum(len(p.input_ids) for p in prompts) + sum(len(s) for m in suffixes for s in m)
    packed = pack_shared_prefix(
        [p.input_ids for p in prompts],
        suffixes,
        token_budget=total,
        pad_id=backbone.pad_id,
        multiple_of=FLEX_BLOCK if backbone.shared_attention == "flex" else 1,
    )
    batch = packed.to(backbone.device)
    positions = packed.position_ids([p.positions for p in prompts]).to(backbone.device)
    fast = None if backbone.shared_attention == "dense" else fast_attention(backbone, packed, batch)
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
