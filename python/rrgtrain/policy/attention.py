"""The attention function our policies are loaded with: SDPA unless the call brings its own.

`transformers` passes unknown keyword arguments of a forward down to the attention function. Ours
looks for one, `attend`; a shared prefix is laid out, or a group's cache walked, without touching
any class of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ATTENTION = "rrgtrain"

# layer index, query [R, heads, L, D], key, value [R, key heads, L, D], scale -> like query
Attend = Callable[[int, Tensor, Tensor, Tensor, float], Tensor]


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    attend: Attend | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    if attend is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    layer: Any = module.layer_idx
    out = attend(layer, query, key, value, scaling or query.shape[-1] ** -0.5)
    return out.transpose(1, 2).contiguous(), None


def require_attention(text_config: Any) -> None:
    """Raises ValueError for a language model that would drop `attend` without a word."""
    found = text_config._attn_implementation
    if found != ATTENTION:
        raise ValueError(
            f"the language model's attention is {found!r}, wanted {ATTENTION!r}: load it with "
            f"load_policy, or call model.set_attn_implementation({{'text_config': {ATTENTION!r}}})"
        )


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
