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
        self.prompts, self.width = prompts, group
        self.slot: Tensor | None = None
        self.place = torch.zeros(1, dtype=torch.int64, device=device)

    def select(self, rows: list[int]) -> Tensor:
        """Keep `rows` in ascending order; return the prompts that they belong to."""
        prompt = [self.prompt[row] for row in rows]
        used = sorted({*prompt})
        self.prompt, self.prompts = [used.index(b) for b in prompt], len(used)
        self.width = max(map(prompt.count, used))
        slots = [b * self.width + i - self.prompt.index(b) for i, b in enumerate(self.prompt)]
        self.slot = torch.tensor(slots, device=self.place.device)
        return torch.tensor(used, device=self.place.device)

    def together(self, per_row: Tensor) -> Tensor:
        """[rows, key heads, repeats, x] to [B, key heads, members * repeats, x].

        A prompt that has lost members gets empty places.
        """
        if self.slot is not None:
            grid = per_row.new_zeros(self.prompts * self.width, *per_row.shape[1:])
            per_row = grid.index_copy_(0, self.slot, per_row)
        return per_row.unflatten(0, (-1, self.width)).transpose(1, 2).flatten(2, 3)

    def apart(self, per_prompt: Tensor) -> Tensor:
        """The inverse of `together`."""
        flat = per_prompt.unflatten(2, (self.width, -1)).transpose(1, 2).flatten(0, 1)
        return flat if self.slot is None else flat.index_select(0, self.slot)


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
        """Keep these rows and these prompts."""
        self.own_keys, self.own_values = self.own_keys[rows], self.own_values[rows]
        if len(prompts) < len(self.keys):
            self.keys, self.values = self.keys[prompts], self.values[prompts]

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the keys and values of the new tokens."""
        self.own_keys.index_copy_(2, self.members.place, as_read(key_states))
        self.own_values.index_copy_(2, self.members.place, as_read(value_states))
        return key_states, value_states

    def get_seq_length(self) -> Any:
        return self.members.place[0] + self.keys.shape[2]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.keys.shape[2] + self.own_keys.shape[2], 0

    def attend(self, query: Tensor, mask: Tensor | None, scale: float, options: Any) -> Tensor:
        """Attend from new tokens [rows, heads, 1, D] to prompt and room, by the mask.

        A token's own key and value are stored already. Scores and softmax are fp32 at least.
        """
        softcap, sinks = options.get("softcap"), options.get("s_aux")
        rows, heads, _one, width = query.shape
        key_heads, length = self.keys.shape[1:3]
        queries = as_read(query).view(rows, key_heads, heads // key_heads, width)
        of_prompt = product(self.members.together(queries), self.keys.transpose(2, 3))
        own = product(queries, self.own_keys.transpose(2, 3))
        scores = torch.cat([self.members.apart(of_prompt), own], -1) * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if mask is not None and mask.dtype == torch.bool:
            scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
        elif mask is not None:
            scores = scores + mask
        if sinks is not None:
            column = sinks.to(scores.dtype).view(1, key_heads, -1, 1).expand(rows, -1, -1, -1)
            scores = torch.cat([scores, column], -1)
        weights = scores.softmax(-1)[..., : length + self.own_keys.shape[2]]
        of_prompt = product(self.members.together(weights[..., :length]), self.values)
        out = self.members.apart(of_prompt) + product(weights[..., length:], self.own_values)
        return out.reshape(rows, heads, 1, -1).to(query.dtype)


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
        """Make room for so many tokens more of each row."""
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
