"""Decode groups of any family: one prefill a prompt, its cache copied to the members.

`Cache.reorder_cache` of transformers knows every kind of layer (windows, convolutions, recurrent
states): it hands the prefill to the members and drops the rows that have ended. A family that is
packed decodes faster, with a cache that holds a prompt once (`transformers_engine`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from rrgclinical.common.errors import UserError, cause_line
from rrgpolicy.model.own_forward import (
    as_arguments,
    last_hidden,
    refuse_stale,
    unshared_hidden,
)
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import EncodedPrompt


class FamilyDecoder:
    """Hold the decode state of a batch: `hidden` [n, H] of the rows left."""

    compact_below = 0.75

    def __init__(self, policy: Policy, prompts: list[EncodedPrompt], group: int) -> None:
        refuse_stale(policy, policy.vision_cache)
        self.policy = policy
        device, longest = policy.device, max(len(p.input_ids) for p in prompts)

        def left(values: Tensor, fill: int = 0) -> Tensor:
            return pad(values, (longest - values.shape[-1], 0), value=fill).to(device)

        ids = torch.cat([left(p.inputs["input_ids"], policy.pad_id) for p in prompts])
        mask = torch.cat([left(torch.ones_like(p.inputs["input_ids"])) for p in prompts])
        tokens = {
            name: torch.cat([left(p.per_token[name]) for p in prompts])
            for name in prompts[0].per_token
        }
        self.axes = len(prompts[0].positions)
        positions = torch.stack([left(p.positions) for p in prompts], 1)
        self.cache = _cache_of(policy)
        shown = as_arguments(policy, prompts)
        with _told(policy):
            hidden = last_hidden(
                policy,
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions[0] if self.axes == 1 else positions,
                past_key_values=self.cache,
                use_cache=True,
                **tokens,
                **shown,
            )
        # Mamba would take the mask's first column for that of the token, which may be padding's.
        self.attends = any(isinstance(layer, CacheLayerMixin) for layer in self.cache.layers)
        members = torch.arange(len(prompts), device=device).repeat_interleave(group)
        self.cache.reorder_cache(members)
        self.hidden = self._scaled(hidden[:, -1][members])
        self.mask = mask[members]
        after = torch.stack([p.positions.max() + 1 for p in prompts]).to(device)
        self.next_position = after[members]

    def select(self, rows: list[int]) -> None:
        """Keep these rows alone."""
        left = torch.tensor(rows, device=self.mask.device)
        self.cache.reorder_cache(left)
        self.mask, self.next_position = self.mask[left], self.next_position[left]

    def reserve(self) -> bool:
        return False

    def forward(self, token: Tensor) -> Tensor:
        """Compute the hidden states [n, H] behind the tokens [n]."""
        self.mask = pad(self.mask, (0, 1), value=1)
        places = self.next_position[:, None]
        self.next_position = self.next_position + 1
        hidden = last_hidden(
            self.policy,
            input_ids=token[:, None],
            attention_mask=self.mask if self.attends else None,
            position_ids=places if self.axes == 1 else places.expand(self.axes, -1, -1),
            past_key_values=self.cache,
            use_cache=True,
        )
        self.hidden = self._scaled(hidden[:, -1])
        return self.hidden

    def own(self, prompt: EncodedPrompt, member: Tensor) -> Tensor:
        """Compute the state [H] before a report's last token without a cache."""
        (states,) = unshared_hidden(self.policy, [prompt], [[member]])
        return self._scaled(states[-1])

    def _scaled(self, hidden: Tensor) -> Tensor:
        scale = self.policy.scale
        return hidden if scale == 1 else hidden * scale


@contextmanager
def _told(policy: Policy) -> Iterator[None]:
    """Tell in one line what a foreign forward raises, other than of the device."""
    try:
        yield
    except UserError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, NotImplementedError) as error:
        raise UserError(
            f"a {type(policy.backbone).__name__} cannot write reports in the trainer's process: "
            f"its forward fails with a cache ({cause_line(error)}); use rollout.engine=vllm, or "
            "another model"
        ) from error


def _cache_of(policy: Policy) -> Any:
    """Make an empty cache, which forgets what is behind a window where the model has windows.

    transformers' goes by the configuration alone, and would lose tokens that the layers attend to.
    """
    cache: Any = DynamicCache(config=policy.text_config)
    if not policy.has_windows:
        windows = DynamicSlidingWindowLayer
        cache.layers = [DynamicLayer() if type(x) is windows else x for x in cache.layers]
    return cache
