"""Attend in a decoding step in plain PyTorch: the tests' oracle, and what serves CPUs."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgkern.shared_prefix.inputs import DecodeStep


def decode_reference(step: DecodeStep) -> Tensor:
    """Store new keys and values, and attend: [N, heads, D] to [N, heads, E].

    Each prompt is read once for all its rows. Scores and softmax are fp32 at least.
    """
    for own, new in ((step.own_keys, step.key), (step.own_values, step.value)):
        own.index_copy_(2, step.place, new.to(own.dtype)[:, :, None])
    prompt_keys, prompt_values, own_keys, own_values = (
        x.to(torch.promote_types(x.dtype, torch.float32))
        for x in (step.prompt_keys, step.prompt_values, step.own_keys, step.own_values)
    )
    rows, heads, width = step.query.shape
    key_heads, length = prompt_keys.shape[1:3]
    queries = step.query.to(own_keys.dtype).view(rows, key_heads, -1, width)
    of_prompt = _apart(_together(queries, step) @ prompt_keys.transpose(2, 3), step)
    scores = torch.cat([of_prompt, queries @ own_keys.transpose(2, 3)], -1) * step.scale
    if step.softcap is not None:
        scores = step.softcap * torch.tanh(scores / step.softcap)
    mask = _within(step) if step.mask is None else step.mask[:, None, None]
    if mask.dtype == torch.bool:
        scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
    else:
        scores = scores + mask
    if step.sinks is not None:
        column = step.sinks.to(scores.dtype).view(1, key_heads, -1, 1).expand(rows, -1, -1, -1)
        scores = torch.cat([scores, column], -1)
    weights = scores.softmax(-1)[..., : length + own_keys.shape[2]]
    of_prompt = _apart(_together(weights[..., :length], step) @ prompt_values, step)
    out: Tensor = of_prompt + weights[..., length:] @ own_values
    return out.reshape(rows, heads, -1).to(step.query.dtype)


def _within(step: DecodeStep) -> Tensor:
    """Mark the places [P + room] that a step without a mask sees."""
    last = step.place + step.prompt_keys.shape[2]
    places = torch.arange(step.prompt_keys.shape[2] + step.own_keys.shape[2], device=last.device)
    window = len(places) if step.window is None else step.window
    return (places <= last) & (places > last - window)


def _together(per_row: Tensor, step: DecodeStep) -> Tensor:
    """[N, key heads, repeats, x] to [B, key heads, width * repeats, x].

    The place of a row that has left holds another's values.
    """
    if step.members is not None:
        per_row = per_row.index_select(0, step.members.flatten().clamp(min=0))
    grid: Tensor = per_row.unflatten(0, (len(step.prompt_keys), -1))
    return grid.transpose(1, 2).flatten(2, 3)


def _apart(per_prompt: Tensor, step: DecodeStep) -> Tensor:
    """The inverse of `_together`."""
    rows, prompts = len(step.query), len(step.prompt_keys)
    width = rows // prompts if step.members is None else step.members.shape[1]
    grid: Tensor = per_prompt.unflatten(2, (width, -1)).transpose(1, 2).flatten(0, 1)
    if step.members is None:
        return grid
    # what stands in for rows that have left goes to one behind the others
    places = step.members.flatten()
    places = torch.where(places < 0, rows, places)
    return grid.new_empty(rows + 1, *grid.shape[1:]).index_copy_(0, places, grid)[:rows]
