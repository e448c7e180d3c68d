"""Keys and values of a decode loop: a prompt's stored once for its whole group."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import Cache


class GroupCache(Cache):
    """Keys and values of a decode loop, the prompts' shared by their groups.

    Per layer, the prompts' [B, heads, P, width], written by one prefill, and those of the members'
    own tokens [rows, heads, places, width], one place per decode step.

    A step reads each prompt once for all its members, where a cache copied per member reads it
    once for each. `transformers` appends by concatenation, which copies everything for every
    token; here room grows by `chunk` places and a step writes its own place only.

    A step is `reserve`, the model's forward with `attend`, and `advance`. With `whole_room` a
    forward reads all places and hides those to come: it then asks the host for nothing, and is the
    same work at every step until the buffers change, so a CUDA graph can repeat it.
    """

    def __init__(
        self, hidden_prefix: Tensor, group: int, *, chunk: int = 64, whole_room: bool = False
    ) -> None:
        """hidden_prefix bool [B, P], True on padding; group: members per prompt, row r belonging
        to prompt r // group."""
        super().__init__(layers=[])
        self._chunk = chunk
        self._whole_room = whole_room
        self._length = 0
        # That of the next token, on the device.
        self._place = torch.zeros(1, dtype=torch.int64, device=hidden_prefix.device)
        self._prefix: list[tuple[Tensor, Tensor]] = []
        self._own: list[tuple[Tensor, Tensor]] = []
        prompts = hidden_prefix.shape[0]
        # on the host, as all that `select` decides by: it must not wait for the device
        self._prompt = [b for b in range(prompts) for _ in range(group)]
        self._width = group
        self._slot: Tensor | None = None
        self._penalty: Tensor | None = None
        if bool(hidden_prefix.any()):
            penalty = torch.zeros(hidden_prefix.shape, device=hidden_prefix.device)
            penalty.masked_fill_(hidden_prefix, torch.finfo(penalty.dtype).min)
            self._penalty = penalty[:, None, None]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the keys and values of a layer's new tokens."""
        new = as_read(key_states), as_read(value_states)
        if layer_idx == len(self._prefix):
            # a product would copy at every step what does not lie head by head
            self._prefix.append((new[0].contiguous(), new[1].contiguous()))
            heads, width = key_states.shape[1], key_states.shape[3]
            # zeros: a weight of 0 for a place to come must not meet a NaN
            room = new[0].new_zeros(len(self._prompt), heads, self._chunk, width)
            self._own.append((room, torch.zeros_like(room)))
            return key_states, value_states
        for room, states in zip(self._own[layer_idx], new, strict=True):
            room.index_copy_(2, self._place, states)
        return key_states, value_states

    def reserve(self) -> bool:
        """Make room for the next token of each row.

        Returns True where the buffers are new ones.
        """
        self._length += 1
        if self._length <= self._own[0][0].shape[2]:
            return False
        self._own = [
            (pad(keys, (0, 0, 0, self._chunk)), pad(values, (0, 0, 0, self._chunk)))
            for keys, values in self._own
        ]
        return True

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attend from each row's new token [rows, heads, 1, width] to its context.

        `key` and `value` of that token are in the cache already. Scores and softmax are fp32
        at least, whatever the model's dtype.
        """
        rows, heads, _one, width = query.shape
        key_heads = key.shape[1]
        read = self._own[layer][0].shape[2] if self._whole_room else self._length
        own_keys, own_values = (t[:, :, :read] for t in self._own[layer])
        keys, values = self._prefix[layer]
        length = keys.shape[2]
        queries = as_read(query).view(rows, key_heads, heads // key_heads, width)

        scores = product(self._side_by_side(queries), keys.transpose(2, 3))
        if self._penalty is not None:
            scores = scores + self._penalty
        own = product(queries, own_keys.transpose(2, 3))
        if self._whole_room:
            to_come = torch.arange(read, device=own.device) > self._place
            own = own.masked_fill(to_come, torch.finfo(own.dtype).min)
        scores = torch.cat([self._per_row(scores, rows), own], -1)
        weights = (scores * scale).softmax(-1)
        of_prompt = product(self._side_by_side(weights[..., :length]), values)
        out = self._per_row(of_prompt, rows) + product(weights[..., length:], own_values)
        return out.reshape(rows, heads, 1, width).to(query.dtype)

    def advance(self) -> None:
        """Go on to the next place, once every layer has stored its own."""
        self._place += 1

    def select(self, rows: list[int]) -> None:
        """Keeps `rows` in ascending order, and the prompts that they belong to."""
        own = torch.tensor(rows, device=self._place.device)
        self._own = [
            (keys.index_select(0, own), values.index_select(0, own)) for keys, values in self._own
        ]
        prompt = [self._prompt[row] for row in rows]
        left = sorted({*prompt})
        if len(left) < len(self._prefix[0][0]):
            used = torch.tensor(left, device=self._place.device)
            self._prefix = [
                (keys.index_select(0, used), values.index_select(0, used))
                for keys, values in self._prefix
            ]
            if self._penalty is not None:
                self._penalty = self._penalty[used]
        self._prompt = [left.index(b) for b in prompt]
        self._width = max(map(prompt.count, left))
        slots = [b * self._width + i - self._prompt.index(b) for i, b in enumerate(self._prompt)]
        self._slot = torch.tensor(slots, device=self._place.device)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._length

    def _side_by_side(self, per_row: Tensor) -> Tensor:
        """[rows, key heads, repeats, x] to [B, key heads, members * repeats, x]; a prompt that has
        lost members gets empty places."""
        if self._slot is not None:
            prompts = self._prefix[0][0].shape[0]
            grid = per_row.new_zeros(prompts * self._width, *per_row.shape[1:])
            per_row = grid.index_copy_(0, self._slot, per_row)
        split = per_row.unflatten(0, (-1, self._width)).transpose(1, 2)
        return split.flatten(2, 3)

    def _per_row(self, side_by_side: Tensor, rows: int) -> Tensor:
        """The inverse of `_side_by_side`."""
        split = side_by_side.unflatten(2, (self._width, -1)).transpose(1, 2)
        flat = split.flatten(0, 1)
        return flat if self._slot is None else flat.index_select(0, self._slot)


def as_read(states: Tensor) -> Tensor:
    """Return states as `product` reads them, in fp32 at least on a CPU."""
    return states if states.is_cuda else states.to(_wide(states))


def product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply [B, heads, m, k] by [B, heads, k, n]; sums are fp32 at least.

    A GPU reads 16-bit numbers as they are, and `left` rounded to them; a CPU has no such product.
    """
    if right.dtype == _wide(right):
        return left.to(right.dtype) @ right
    batches = left.to(right.dtype).flatten(0, 1), right.flatten(0, 1)
    return torch.bmm(*batches, out_dtype=_wide(right)).unflatten(0, right.shape[:2])


def _wide(states: Tensor) -> torch.dtype:
    return torch.promote_types(states.dtype, torch.float32)
