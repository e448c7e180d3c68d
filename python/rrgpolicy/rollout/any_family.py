"""Decode groups of any family: one prefill of all prompts, then a step a token.

Steps read and write the same memory where the family's layers allow it (`GroupCache.share`), so
that a graph can repeat them; else transformers' own cache is copied to the members and grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import CacheLayerMixin

from rrgclinical.common.errors import UserError, cause_line
from rrgpolicy.model.forward import embed, image_index, vision_embeddings
from rrgpolicy.model.own_forward import (
    as_arguments,
    as_named,
    head_inputs,
    refuse_stale,
    takes_any,
    unshared_hidden,
)
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.prompt import EncodedPrompt
from rrgpolicy.rollout.cache import GroupCache, Members


class Decoder:
    """Hold the decode state of a batch: `hidden` [n, H] of the rows left."""

    def __init__(
        self, policy: Policy, prompts: list[EncodedPrompt], group: int, chunk: int
    ) -> None:
        """chunk: places by which the room of members' tokens grows."""
        refuse_stale(policy, policy.vision_cache)
        self.policy, self.scale = policy, policy.scale
        device = policy.device
        self.longest = longest = max(len(p.input_ids) for p in prompts)

        def left(values: Tensor, fill: int = 0) -> Tensor:
            return pad(values, (longest - values.shape[-1], 0), value=fill).to(device)

        mask = torch.cat([left(torch.ones_like(p.inputs["input_ids"])) for p in prompts])
        self.axes = len(prompts[0].positions)
        positions = torch.stack([left(p.positions) for p in prompts], 1)
        self.cache = GroupCache(policy.text_config)
        members = Members(len(prompts), group, device)
        self.place = members.place
        ids = torch.cat([left(p.inputs["input_ids"], policy.pad_id) for p in prompts])
        if policy.decodes_packed:
            starts = [(b + 1) * longest - len(p.input_ids) for b, p in enumerate(prompts)]
            images = vision_embeddings(policy, prompts)
            shown = {"inputs_embeds": embed(policy, ids, image_index(prompts, starts), images)}
        else:
            shown = {"input_ids": ids, **as_arguments(policy, prompts)} | {
                name: torch.cat([left(p.per_token[name]) for p in prompts])
                for name in prompts[0].per_token
            }
        self.always = as_named(policy, {"past_key_values": self.cache, "use_cache": True})
        if takes_any(policy):
            self.always["attend_group"] = self.cache.attend
        with _told(policy), self.hooked():
            hidden = self._forward(
                attention_mask=mask,
                position_ids=positions[0] if self.axes == 1 else positions,
                **shown,
            )
        self.stays = self.cache.share(members)
        if not self.stays:
            self.always.pop("attend_group", None)
        self.chunk = chunk if self.stays else 1
        # Mamba would take the mask's first column for that of the token, which may be padding's.
        self.attends = any(isinstance(layer, CacheLayerMixin) for layer in self.cache.layers)
        rows = torch.tensor(members.prompt, device=device)
        self.hidden, self.mask = hidden[rows], mask[rows]
        after = torch.stack([p.positions.max() + 1 for p in prompts]).to(device)
        self.next_position = after[rows]

    def select(self, rows: list[int]) -> None:
        """Keep these rows alone."""
        left = torch.tensor(rows, device=self.place.device)
        self.cache.select(rows, left)
        self.mask, self.next_position = self.mask[left], self.next_position[left]

    def reserve(self, t: int) -> bool:
        """Make room for the tokens at place `t`; True where buffers are new ones."""
        if self.longest + t < self.mask.shape[1]:
            return False
        self.mask = pad(self.mask, (0, self.chunk))
        self.cache.grow(self.chunk)
        return True

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Take the head's inputs; `forward` is called inside."""
        with head_inputs(self.policy) as self.taken:
            yield

    def forward(self, token: Tensor) -> Tensor:
        """Compute the hidden states [n, H] behind the tokens [n]."""
        self.mask.index_fill_(1, self.place + self.longest, 1)
        places = self.next_position[:, None]
        self.hidden = self._forward(
            input_ids=token[:, None],
            attention_mask=self.mask if self.attends else None,
            position_ids=places if self.axes == 1 else places.expand(self.axes, -1, -1),
        )
        self.place += 1
        self.next_position += 1
        return self.hidden

    def own(self, prompt: EncodedPrompt, member: Tensor) -> Tensor:
        """Compute the state [H] before a report's last token without a cache."""
        (states,) = unshared_hidden(self.policy, [prompt], [[member]])
        return self._scaled(states[-1])

    def _forward(self, **inputs: Any) -> Tensor:
        self.policy.model(**self.always, **inputs)
        return self._scaled(self.taken.pop()[:, -1])

    def _scaled(self, hidden: Tensor) -> Tensor:
        return hidden if self.scale == 1 else hidden * self.scale


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
