"""Run the prompt once, its members as a batch behind a cache with a graph.

For layers with a state (linear attention, convolutions), which no mask can share. The model's own
forward runs twice. Neither of the two caches changes when a layer runs again, so that layers may be
checkpointed: `PromptStates` keeps the states of the prompt once, `Behind` gives them as a past.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.modeling_layers import GradientCheckpointingLayer

from rrgpolicy.model.backbone import Backbone
from rrgpolicy.model.own_forward import as_arguments, last_hidden, nothing
from rrgpolicy.model.prompt import EncodedPrompt


class _Past(DynamicCache):
    """A past of `past` tokens that no call changes."""

    past = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.past

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return self.past

    def is_recording_past(self, layer_idx: int) -> bool:
        return False

    def kept(self, layer_idx: int) -> int:
        """Count the tokens of the past that a layer sees."""
        layer = self.layers[layer_idx] if layer_idx < len(self.layers) else None
        window = getattr(layer, "sliding_window", None)
        return self.past if window is None else min(self.past, window - 1)

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        tokens = self.kept(layer_idx)
        return tokens + query_length, self.past - tokens


class PromptStates(_Past):
    """Empty for the model; keeps the states of each layer, once."""

    def __init__(self, config: Any) -> None:
        super().__init__(config=config)
        self.pairs: dict[int, tuple[Tensor, Tensor]] = {}
        self.conv: dict[tuple[int, int], Tensor] = {}
        self.recurrent: dict[tuple[int, int], Tensor] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        self.pairs.setdefault(layer_idx, (key_states, value_states))
        return key_states, value_states

    def has_previous_state(self, *_: Any, **__: Any) -> bool:
        return False

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> None:
        return None

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> None:
        return None

    def update_conv_state(
        self,
        conv_states: Tensor,
        layer_idx: int,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
        **_: Any,
    ) -> Tensor:
        size = conv_kernel_size or conv_states.shape[-1]
        full = pad(conv_states, (max(size - conv_states.shape[-1], 0), 0))
        self.conv.setdefault((layer_idx, state_idx), full[..., -size:])
        return full

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **_: Any
    ) -> Tensor:
        self.recurrent.setdefault((layer_idx, state_idx), recurrent_states)
        return recurrent_states


class Behind(_Past):
    """Give the states of a prompt of `past` tokens to each of `members` rows."""

    def __init__(self, config: Any, recorder: PromptStates, past: int, members: int) -> None:
        super().__init__(config=config)
        self.recorder, self.past, self.members = recorder, past, members

    def _each(self, state: Tensor) -> Tensor:
        return state.expand(self.members, *state.shape[1:])

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        tokens = self.kept(layer_idx)
        before = (s[:, :, s.shape[2] - tokens :] for s in self.recorder.pairs[layer_idx])
        both = zip(before, (key_states, value_states), strict=True)
        key, value = (torch.cat([self._each(past), own], 2) for past, own in both)
        return key, value

    def has_previous_state(self, *_: Any, **__: Any) -> bool:
        return True

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor:
        return self._each(self.recorder.conv[layer_idx, state_idx])

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        state = self.recorder.recurrent.get((layer_idx, state_idx))
        return None if state is None else self._each(state)

    def update_conv_state(
        self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, **_: Any
    ) -> Tensor:
        return torch.cat([self.get_conv_state(layer_idx, state_idx), conv_states], -1)

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **_: Any
    ) -> Tensor:
        return recurrent_states


def cache_hidden(
    backbone: Backbone, prompts: list[EncodedPrompt], suffixes: list[list[Tensor]]
) -> list[Tensor]:
    """Hidden states [N_b, H] that predict the tokens of each group's members."""
    for module in backbone.backbone.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module._can_checkpoint_with_cache = True
    pairs = zip(prompts, suffixes, strict=True)
    return [_group(backbone, prompt, members) for prompt, members in pairs]


def _group(backbone: Backbone, prompt: EncodedPrompt, members: list[Tensor]) -> Tensor:
    if not sum(len(member) for member in members):
        return nothing(backbone)
    device, text, past = backbone.device, backbone.text_config, len(prompt.input_ids)
    recorder = PromptStates(text)
    tokens = {"input_ids": prompt.inputs["input_ids"], **prompt.per_token}
    own = prompt.positions.to(device)
    first = last_hidden(
        backbone,
        **{k: v.to(device) for k, v in tokens.items()},
        **as_arguments(backbone, [prompt]),
        position_ids=own if len(own) == 1 else own[:, None],
        past_key_values=recorder,
    )[:, -1]
    # a token alone would be taken for decoding, which changes states in place
    longest = max(2, *(len(member) for member in members))
    ids = torch.stack([pad(m, (0, longest - len(m)), value=backbone.pad_id) for m in members])
    after = own.max() + 1 + torch.arange(longest, device=device)
    shape = (len(members), longest) if len(own) == 1 else (len(own), len(members), longest)
    hidden = last_hidden(
        backbone,
        input_ids=ids.to(device),
        position_ids=after.expand(shape),
        past_key_values=Behind(text, recorder, past, len(members)),
    )
    whole = [(m, row) for m, row in zip(members, hidden, strict=True) if len(m)]
    return torch.cat([part for m, row in whole for part in (first, row[: len(m) - 1])])
