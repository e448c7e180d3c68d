"""Keys and values of a decode loop, written in place."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers.cache_utils import Cache


class DecodeCache(Cache):
    """Per layer, keys and values [rows, heads, places, width]; places fill from the left.

    `transformers` appends by concatenation, which copies the whole cache for every token; here
    room grows by `chunk` places at a time and a step writes its own place only.
    """

    def __init__(self, chunk: int = 64) -> None:
        super().__init__(layers=[])
        self.chunk = chunk
        self.length = 0
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Called by each attention layer: stores the new places, returns all of them."""
        if layer_idx == len(self._keys):
            self._keys.append(self._with_room(key_states))
            self._values.append(self._with_room(value_states))
            return key_states, value_states
        end = self.length + key_states.shape[2]
        if end > self._keys[layer_idx].shape[2]:
            self._keys[layer_idx] = self._with_room(self._keys[layer_idx][:, :, : self.length])
            self._values[layer_idx] = self._with_room(self._values[layer_idx][:, :, : self.length])
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        keys[:, :, self.length : end] = key_states
        values[:, :, self.length : end] = value_states
        return keys[:, :, :end], values[:, :, :end]

    def advance(self, places: int) -> None:
        """Counts the places that every layer has just stored."""
        self.length += places

    def select(self, rows: Tensor) -> None:
        """Keeps `rows` int64 [n], which may repeat (a prompt for its group) or leave some out."""
        for stored in (self._keys, self._values):
            for layer, tensor in enumerate(stored):
                kept = tensor[:, :, : self.length].index_select(0, rows)
                stored[layer] = self._with_room(kept)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def _with_room(self, states: Tensor) -> Tensor:
        rows, heads, places, width = states.shape
        room = states.new_empty(rows, heads, places + self.chunk, width)
        room[:, :, :places] = states
        return room
