"""Hold a decoding step, and attend in plain PyTorch: what serves CPUs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.checks import check_tensors


class DecodeStep(NamedTuple):
    """Hold a new token of each of N rows, and what is stored before it.

    The rows belong to B prompts. A token sees its prompt, its row's places before `place`, and
    itself. D and E are the widths of a key and a value; query heads are a multiple of key heads. No
    gradient.
    """

    query: Tensor
    """[N, heads, D]."""
    key: Tensor
    """[N, key heads, D] of the new tokens, like `value`."""
    value: Tensor
    """[N, key heads, E]."""
    prompt_keys: Tensor
    """[B, key heads, P, D], P >= 1, padded in front where prompts are shorter."""
    prompt_values: Tensor
    """[B, key heads, P, E]."""
    own_keys: Tensor
    """[N, key heads, room, D]; the new keys are written to it at `place`."""
    own_values: Tensor
    """[N, key heads, room, E], likewise."""
    place: Tensor
    """int64 [1], below room; not read by the host."""
    members: Tensor | None = None
    """int64 [B, width]: rows of each prompt, at least one, -1 behind them. None: N / B each."""
    mask: Tensor | None = None
    """[N, P + room], bool (True: visible) or added to scores; equal for a prompt's rows. It hides
    padding, and the places behind `place`; the new token sees itself whatever it says."""
    sinks: Tensor | None = None
    """[heads]: a score beside the others that has no value, as in gpt-oss."""
    scale: float = 1.0
    """A score is query · key * scale."""
    softcap: float | None = None
    """Scores become softcap * tanh(score / softcap)."""
    window: int | None = None
    """Places that a token sees at most, itself included. A `mask` must hold it too: the window
    then says where reading begins."""

    def check(self) -> None:
        """Raise TypeError or ValueError for tensors that do not fit together."""
        numbers = ("scale", "softcap", "window")
        tensors = {name: x for name, x in self._asdict().items() if name not in numbers}
        check_tensors(optional={name: tensors.pop(name) for name in ("members", "mask", "sinks")})
        check_tensors(**tensors)
        rows, heads, width = self.query.shape
        prompts, key_heads, length, depth = self.prompt_values.shape
        room = self.own_keys.shape[2]
        shapes = {
            "key": (rows, key_heads, width),
            "value": (rows, key_heads, depth),
            "prompt_keys": (prompts, key_heads, length, width),
            "own_keys": (rows, key_heads, room, width),
            "own_values": (rows, key_heads, room, depth),
            "place": (1,),
        }
        shapes |= {} if self.mask is None else {"mask": (rows, length + room)}
        shapes |= {} if self.sinks is None else {"sinks": (heads,)}
        for name, shape in shapes.items():
            actual = tuple(getattr(self, name).shape)
            if actual != shape:
                raise ValueError(f"{name} is {list(actual)}, wanted {list(shape)}")
        if heads % key_heads or (self.members is None and rows % prompts):
            raise ValueError(
                f"{heads} heads of {key_heads}, {rows} rows of {prompts} prompts: give multiples, "
                "or `members`"
            )


def decode_reference(step: DecodeStep) -> Tensor:
    """Store new keys and values, and attend: [N, heads, D] to [N, heads, E].

    Each prompt is read once for all its rows. Scores and softmax are fp32 at least.
    """
    if step.place.is_cpu and not torch.compiler.is_compiling():
        read = int(step.place) + 1  # no row sees the room behind; what is compiled has one size
        own_keys, own_values = (x[:, :, :read] for x in (step.own_keys, step.own_values))
        mask = None if step.mask is None else step.mask[:, : step.prompt_keys.shape[2] + read]
        step = step._replace(own_keys=own_keys, own_values=own_values, mask=mask)
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
    least = torch.finfo(scores.dtype).min
    scores = torch.where(mask, scores, least) if mask.dtype == torch.bool else scores + mask
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
    places = torch.where(step.members < 0, rows, step.members).flatten()
    return grid.new_empty(rows + 1, *grid.shape[1:]).index_copy_(0, places, grid)[:rows]
