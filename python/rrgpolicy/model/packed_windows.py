"""Attend within the vision tower's windows in a call or a few a layer.

transformers passes the windows of Qwen2.5-VL one after the other to any attention that is no
flash-attn. Ours takes a layer whole: by torch's varlen attention on a GPU of compute capability 8
or more in 16 bits, elsewhere by one SDPA call for windows of equal length. README.md counts calls.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from rrgclinical.common.errors import UserError

# transformers hands over the bounds of the windows, and all windows at once, to an attention with
# "flash" in its name.
PACKED_WINDOWS = "rrgpolicy_flash_windows"
FLASH = "flash_attention_2"
CHOICES = ("auto", "packed", "sdpa", FLASH)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend within windows as transformers asks: [1, heads, N, D] in, [1, N, heads, D] out.

    options: `cu_seq_lens_q`, int32 [W + 1], bounds of the windows; `max_length_q`, the longest;
    `scaling`. A mask is never given.
    """
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    bounds, scale = options["cu_seq_lens_q"], options["scaling"]
    if _serves_varlen(query):
        return _varlen(q, k, v, bounds, options["max_length_q"], scale)[None], None
    return stacked_windows(q, k, v, bounds.diff().tolist(), scale)[None], None


def stacked_windows(
    query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], scale: float
) -> Tensor:
    """Attend within consecutive windows, one SDPA call for all of a length.

    Args:
        query, key, value: [N, heads, D].
        lengths: patches of each window, N in all.
        scale: factor of the products before the softmax.

    Returns:
        [N, heads, D].
    """
    sizes = sorted(set(lengths))
    if len(sizes) == 1:
        shape = (len(lengths), sizes[0])
        query, key, value = (part.unflatten(0, shape) for part in (query, key, value))
        return _sdpa(query, key, value, scale).flatten(0, 1)
    windows = [part.split(list(lengths)) for part in (query, key, value)]
    attended: list[Tensor] = [query] * len(lengths)
    for size in sizes:
        members = [number for number, length in enumerate(lengths) if length == size]
        q, k, v = (torch.stack([part[number] for number in members]) for part in windows)
        for number, window in zip(members, _sdpa(q, k, v, scale).unbind(), strict=True):
            attended[number] = window
    return torch.cat(attended)


def _sdpa(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """[W, L, heads, D] of each -> [W, L, heads, D]."""
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    return scaled_dot_product_attention(query, key, value, scale=scale).transpose(1, 2)


def _serves_varlen(query: Tensor) -> bool:
    """Tell whether torch's varlen attention computes in this dtype on this device."""
    fits = query.device.type == "cuda" and query.dtype in (torch.bfloat16, torch.float16)
    return fits and torch.cuda.get_device_capability(query.device) >= (8, 0)


def _varlen(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, scale: float
) -> Tensor:
    """[N, heads, D] of each -> [N, heads, D], windows between int32 bounds [W + 1]."""
    # Torch 2.11's takes no scale: its own is D ** -0.5, as the tower's.
    if scale != query.shape[-1] ** -0.5:
        query = query * (scale * query.shape[-1] ** 0.5)
    out: Any = varlen_attn(query, key, value, bounds, bounds, longest, longest)
    return out


AttentionInterface.register(PACKED_WINDOWS, _attention)


def vision_attention(
    asked: str, device: torch.device | str, dtype: torch.dtype, *, windows: bool = True
) -> str:
    """Name the tower's attention for transformers: "sdpa", "flash_attention_2" or PACKED_WINDOWS.

    "auto" is flash-attn wherever it can run, and "packed" elsewhere. A tower without `windows` has
    nothing to pack and gains nothing by flash-attn: "auto" and "packed" are "sdpa" for it. Raises
    UserError, with the reason, where flash-attn is asked for and cannot run.
    """
    if asked not in CHOICES:
        raise UserError(f"policy.vision_attn={asked}; use one of {', '.join(CHOICES)}")
    if not windows and asked != FLASH:
        return "sdpa"
    if asked in ("packed", "sdpa"):
        return PACKED_WINDOWS if asked == "packed" else asked
    missing = _missing(torch.device(device), dtype)
    if missing is None:
        return FLASH
    if asked == FLASH:
        raise UserError(f"policy.vision_attn={FLASH} {missing}, or use policy.vision_attn=auto")
    return PACKED_WINDOWS


def _missing(device: torch.device, dtype: torch.dtype) -> str | None:
    """What keeps flash-attn from running and how to mend it; None where it can."""
    if device.type != "cuda":
        return f"runs on a GPU only, and the policy is on {device.type}; use policy.device=cuda"
    if dtype not in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        return f"computes in 16 bits only, and the policy is {name}; use policy.dtype=bfloat16"
    if importlib.util.find_spec("flash_attn") is None:
        return "needs flash-attn; pip install --no-build-isolation 'rrgkern[flash-attn]'"
    return None
