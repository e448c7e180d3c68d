"""Decode groups of any family, a prompt's keys and values kept once.

One prefill of all prompts, then a step a token. Steps read and write the same memory where the
family's layers allow it (`GroupCache.share`), so that a graph can repeat them; else transformers'
own cache is copied to the members and grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import (
    CacheLayerMixin,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
)

from rrgclinical.common.errors import UserError, cause_line
from rrgkern import DecodeStep, decode_unchecked
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

# Options of a layer's attention that `attend` takes, and those that a mask holds or that say what
# to return.
TAKEN = {"softcap", "s_aux"}
IGNORED = {
    *("sliding_window", "position_ids", "cache_position", "use_cache", "logits_to_keep"),
    *("return_dict", "output_attentions", "output_hidden_states"),
}


class Members:
    """Map rows of the batch to their prompts; hold the place of the next token."""

    def __init__(self, prompts: int, group: int, device: torch.device) -> None:
        """group: members a prompt, row r belonging to prompt r // group."""
        # on the host, as all that `select` decides by: it must not wait for the device
        self.prompt = [b for b in range(prompts) for _ in range(group)]
        self.table: Tensor | None = None
        """int64 [B, most members left], as `DecodeStep.members`; None before a row has left."""
        self.place = torch.zeros(1, dtype=torch.int64, device=device)

    def select(self, rows: list[int]) -> Tensor:
        """Keep `rows` in ascending order; return the prompts that they belong to."""
        prompt = [self.prompt[row] for row in rows]
        used = sorted({*prompt})
        self.prompt = [used.index(b) for b in prompt]
        of_each = [[i for i, b in enumerate(prompt) if b == one] for one in used]
        most = max(map(len, of_each))
        table = [members + [-1] * (most - len(members)) for members in of_each]
        self.table = torch.tensor(table, device=self.place.device)
        return torch.tensor(used, device=self.place.device)


class GroupLayer(DynamicLayer):
    """Hold a layer's keys and values of prompts and of members' own tokens.

    `keys` [B, heads, P, D] are prompts', `own_keys` [rows, heads, room, D] members'. A step reads
    each prompt once for all its members and writes its own place alone.
    """

    keys: Any
    values: Any

    def __init__(self, prefill: Any, members: Members) -> None:
        super().__init__()
        self.is_initialized, self.members = True, members
        self._new: tuple[Tensor, Tensor] | None = None
        # a product would copy at every step what does not lie head by head
        self.keys = as_read(prefill.keys).contiguous()
        self.values = as_read(prefill.values).contiguous()
        rows = len(members.prompt)
        self.own_keys, self.own_values = (
            t.new_zeros(rows, t.shape[1], 0, t.shape[3]) for t in (self.keys, self.values)
        )

    def grow(self, places: int) -> None:
        """Add zeros: a weight of 0 for a place to come must meet no NaN."""
        self.own_keys = pad(self.own_keys, (0, 0, 0, places))
        self.own_values = pad(self.own_values, (0, 0, 0, places))

    def select(self, rows: Tensor, prompts: Tensor) -> None:
        self.own_keys, self.own_values = self.own_keys[rows], self.own_values[rows]
        if len(prompts) < len(self.keys):
            self.keys, self.values = self.keys[prompts], self.values[prompts]

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Take the keys and values of the new tokens, which `attend` stores."""
        self._new = key_states, value_states
        return key_states, value_states

    def get_seq_length(self) -> Any:
        return self.members.place[0] + self.keys.shape[2]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.keys.shape[2] + self.own_keys.shape[2], 0

    def attend(self, query: Tensor, mask: Tensor | None, scale: float, options: Any) -> Tensor:
        """Store the new tokens and attend from them, [rows, heads, 1, D], by the mask.

        Scores and softmax are fp32 at least.
        """
        assert self._new is not None
        key, value = self._new
        self._new = None  # a graph would return what is still held
        step = DecodeStep(
            *(query[:, :, 0], key[:, :, 0], value[:, :, 0], self.keys, self.values),
            *(self.own_keys, self.own_values, self.members.place, self.members.table),
            mask=None if mask is None else mask[:, 0, 0],
            sinks=options.get("s_aux"),
            scale=scale,
            softcap=options.get("softcap"),
            window=options.get("sliding_window"),
        )
        return decode_unchecked(step)[:, :, None]


class GroupCache(DynamicCache):
    """Hold all layers: those of attention share prompts after `share`, states are transformers'.

    A step is `grow` where room is lacking, then the model's forward with `attend`.
    """

    layers: list[Any]

    def __init__(self, text_config: Any) -> None:
        super().__init__(config=text_config)
        # A window is the mask's: the configuration may have one that the layers do not read.
        windows = DynamicSlidingWindowLayer
        self.layers = [DynamicLayer() if type(x) is windows else x for x in self.layers]
        self.members: Members | None = None
        self._attending: set[int] = set()
        self.foreign: set[str] = set()
        """Options of attention that `attend` does not know, and would drop."""

    def attend(
        self, module: nn.Module, query: Tensor, mask: Any, scale: float | None, options: Any
    ) -> Tensor | None:
        """Attend from members' new tokens; None where the family's own attention must serve."""
        index: Any = getattr(module, "layer_idx", None)
        if self.members is None:
            self._attending.add(index)
            others = {k: v for k, v in options.items() if k not in TAKEN | IGNORED}
            self.foreign |= {k for k, v in others.items() if isinstance(v, Tensor) or v}
            if mask is not None and mask.shape[1] != 1:
                self.foreign.add("a mask a head")
            return None
        layer: Any = self.layers[index]
        out: Tensor = layer.attend(query, mask, scale or query.shape[-1] ** -0.5, options)
        return out

    def share(self, members: Members) -> bool:
        """Give prompts to their members; True where all of a step's memory stays then."""
        kinds = {DynamicLayer, LinearAttentionLayer}
        plain = {i for i, layer in enumerate(self.layers) if type(layer) is DynamicLayer}
        stays = self._attending == plain and {type(layer) for layer in self.layers} <= kinds
        stays = stays and not self.foreign and all(self.layers[i].is_initialized for i in plain)
        rows = torch.tensor(members.prompt, device=members.place.device)
        for i, layer in enumerate(self.layers):
            if stays and i in plain:
                self.layers[i] = GroupLayer(layer, members)
            else:
                layer.reorder_cache(rows)
        self.members = members if stays else None
        return stays

    def grow(self, places: int) -> None:
        for layer in self.layers:
            if isinstance(layer, GroupLayer):
                layer.grow(places)

    def select(self, rows: list[int], on_device: Tensor) -> None:
        """Keep `rows` in ascending order, and the prompts that they belong to."""
        prompts = self.members.select(rows) if self.members else on_device
        for layer in self.layers:
            if isinstance(layer, GroupLayer):
                layer.select(on_device, prompts)
            else:
                layer.reorder_cache(on_device)


def as_read(states: Tensor) -> Tensor:
    """Return states as attention reads them: a CPU multiplies in fp32 at least."""
    wide = torch.promote_types(states.dtype, torch.float32)
    return states if states.is_cuda else states.to(wide)


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
        self.first_position = after[rows]

    def select(self, rows: list[int]) -> None:
        left = torch.tensor(rows, device=self.place.device)
        self.cache.select(rows, left)
        self.mask, self.first_position = self.mask[left], self.first_position[left]

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
        places = (self.first_position + self.place)[:, None]
        self.hidden = self._forward(
            input_ids=token[:, None],
            attention_mask=self.mask if self.attends else None,
            position_ids=places if self.axes == 1 else places.expand(self.axes, -1, -1),
        )
        self.place += 1
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
