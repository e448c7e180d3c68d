"""Register the attention of our policies: the model's own unless a call says more.

`transformers` asks a registry for masks and for attention by one name. Under ours a mask can be a
`Row`, for `[prompt | o_1 | ... | o_G]` groups in one row: it asks the model's own mask function for
the blocks that are visible, and our attention calls the family's own on them. Windows, chunks,
image tokens that see each other, sinks and soft caps are so the family's. A packed forward hands
down `attend` instead, an attention of its own; a step of decoding `attend_group`, which takes the
family's mask and options.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, causal_mask_function
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

ATTENTION = "rrgpolicy"
# What lies beneath our name, and the name.
BENEATH = {"sdpa": ATTENTION, "eager": f"{ATTENTION}_eager"}

# layer index, query [R, heads, L, D], key, value [R, key heads, L, D], scale -> like query
Attend = Callable[[int, Tensor, Tensor, Tensor, float], Tensor]


@dataclass(frozen=True)
class RowGroup:
    """A prompt of `prompt` tokens from `start` in its row, then members of `lengths` tokens."""

    start: int
    prompt: int
    lengths: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.start + self.prompt + sum(self.lengths)


@dataclass(frozen=True)
class RowLayout:
    """Hold the groups of a row, and a fast attention for causal layers."""

    groups: tuple[RowGroup, ...]
    attend: Attend | None = None


@dataclass(frozen=True)
class Row:
    """Stands in for an attention mask; `make` and `rule` are the model's own mask functions."""

    layout: RowLayout
    make: Callable[..., Any]
    rule: Any
    options: dict[str, Any]
    # layers and models look at a mask's shape at most
    shape: tuple[int, ...] = (1, 1, 0, 0)
    ndim: int = 4
    _masks: dict[RowGroup, tuple[Any, Any]] = field(default_factory=dict)

    def __getitem__(self, parts: Any) -> Row:
        """Return itself for all of a mask: Gemma 4 cuts its own to the tokens that get logits."""
        if any(part.start or part.stop is not None for part in parts):
            raise IndexError("a row gives logits of all its tokens")
        return self

    @property
    def is_causal(self) -> bool:
        return self.rule is causal_mask_function

    def masks(self, group: RowGroup) -> tuple[Any, Any]:
        """Make the masks of the prompt, and of a member of full length behind it.

        None for the members of a group without tokens, of which no family makes a mask.
        """
        if group not in self._masks:
            longest, length, start = max(group.lengths, default=0), group.prompt, group.start
            if self.is_causal:  # its kernels need none where it begins at 0
                start = 0
            of_prompt = self.make(
                **{"allow_is_causal_skip": True, **self.options},
                **{"q_length": length, "kv_length": length, "q_offset": start, "kv_offset": start},
            )
            of_members = None
            if longest:
                of_members = self.make(
                    **{**self.options, "allow_is_causal_skip": False},
                    **{"q_length": longest, "kv_length": length + longest},
                    **{"q_offset": start + length, "kv_offset": start},
                )
            self._masks[group] = of_prompt, of_members
        return self._masks[group]


_LAYOUT: ContextVar[RowLayout | None] = ContextVar("layout", default=None)


@contextmanager
def laid_out(layout: RowLayout) -> Iterator[None]:
    """Inside, the masks that a model asks for are those of the row."""
    token = _LAYOUT.set(layout)
    try:
        yield
    finally:
        _LAYOUT.reset(token)


def _mask_of(base: str) -> Callable[..., Any]:
    make = ALL_MASK_ATTENTION_FUNCTIONS[base]
    of_row = ("q_length", "kv_length", "q_offset", "kv_offset", "attention_mask", "batch_size")

    def mask(*, mask_function: Any = causal_mask_function, **options: Any) -> Any:
        # a compiled step asks for no row, and could not ask
        layout = None if torch.compiler.is_compiling() else _LAYOUT.get()
        if layout is None:
            return make(mask_function=mask_function, **options)
        others = {k: v for k, v in options.items() if k not in of_row}
        others |= {"mask_function": mask_function, "batch_size": 1}
        return Row(layout, make, mask_function, others)

    return mask


def _attention_of(base: str) -> Callable[..., tuple[Tensor, Any]]:
    def attention(  # noqa: PLR0913
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any,
        scaling: float | None = None,
        attend: Attend | None = None,
        attend_group: Callable[..., Tensor | None] | None = None,
        **options: Any,
    ) -> tuple[Tensor, Any]:
        if attend_group is not None:
            shared = attend_group(module, query, attention_mask, scaling, options)
            if shared is not None:
                return shared.transpose(1, 2).contiguous(), None
        row = attention_mask if isinstance(attention_mask, Row) else None
        if row is not None and row.is_causal and _is_plain(options):
            attend = row.layout.attend
        if attend is not None:
            layer: Any = module.layer_idx
            out = attend(layer, query, key, value, scaling or query.shape[-1] ** -0.5)
            return out.transpose(1, 2).contiguous(), None
        own = ALL_ATTENTION_FUNCTIONS.get(base) or _eager(module)
        if row is None:
            attended: tuple[Tensor, Any] = own(
                module, query, key, value, attention_mask, scaling=scaling, **options
            )
            return attended

        def call(*qkv: Tensor, mask: Any) -> Tensor:
            result: Tensor = own(module, *qkv, mask, scaling=scaling, **options)[0]
            return result

        return _by_blocks(row, query, key, value, call), None

    return attention


def _by_blocks(
    row: Row, query: Tensor, key: Tensor, value: Tensor, call: Callable[..., Tensor]
) -> Tensor:
    """Attention [1, L, heads, D] of a row: each prompt alone, its members as a batch behind it."""
    out: list[Tensor] = []
    for group in row.layout.groups:
        of_prompt, of_members = row.masks(group)
        behind, lengths = group.start + group.prompt, group.lengths
        prompt = [t[:, :, group.start : behind] for t in (query, key, value)]
        out.append(call(*prompt, mask=of_prompt)[0])
        if not sum(lengths):
            continue
        q, *own = (_padded(t[0, :, behind : group.end], lengths) for t in (query, key, value))
        k, v = (
            torch.cat([shared.expand(len(lengths), -1, -1, -1), of_member], 2)
            for shared, of_member in zip(prompt[1:], own, strict=True)
        )
        members = call(q, k, v, mask=of_members)  # [G, T, heads, D]
        out += [member[:n] for member, n in zip(members, lengths, strict=True)]
    if rest := query.shape[2] - row.layout.groups[-1].end:
        out.append(out[0].new_zeros(rest, *out[0].shape[1:]))
    return torch.cat(out)[None]


def _padded(values: Tensor, lengths: Sequence[int]) -> Tensor:
    """[heads, sum, D] -> [G, heads, longest, D]"""
    longest, pad = max(lengths), nn.functional.pad
    parts = values.split(list(lengths), 1)
    return torch.stack([pad(part, (0, 0, 0, longest - part.shape[1])) for part in parts])


def _is_plain(options: dict[str, Any]) -> bool:
    """Tell if a layer asks for nothing that our fast attention lacks."""
    return not any(options.get(k) for k in ("softcap", "sliding_window", "dropout")) and not any(
        options.get(k) is not None for k in ("s_aux", "sinks", "position_bias")
    )


def _eager(module: nn.Module) -> Callable[..., Any]:
    """The attention in Python that stands in the model's own file."""
    for kind in type(module).__mro__:
        eager = getattr(sys.modules[kind.__module__], "eager_attention_forward", None)
        if eager is not None:
            own: Callable[..., Any] = eager
            return own
    raise ValueError(f"{type(module).__name__} has no attention of its own to fall back on")


def require_attention(text_config: Any) -> None:
    """Raises ValueError for a language model that would drop `attend` without a word."""
    implementation = text_config._attn_implementation
    if implementation not in BENEATH.values():
        raise ValueError(
            f"the language model's attention is {implementation!r}, wanted {ATTENTION!r}: "
            "load it with load_policy, or call "
            f"model.set_attn_implementation({{'text_config': {ATTENTION!r}}})"
        )


def use_rows(model: Any) -> None:
    """Put our names in place of the decoder's "sdpa" or "eager"; ValueError for another one."""
    text = model.config.get_text_config()
    name = text._attn_implementation
    if name in BENEATH.values():
        return
    if name not in BENEATH:
        raise ValueError(
            f"the model's attention is {name!r}: load it with attn_implementation='sdpa'"
        )
    # For good: a backward pass with gradient checkpointing looks it up once more.
    own = BENEATH[name]
    model.set_attn_implementation({"text_config": own} if text is not model.config else own)


for _base, _name in BENEATH.items():
    AttentionInterface.register(_name, _attention_of(_base))
    AttentionMaskInterface.register(_name, _mask_of(_base))
