"""Choose the vision tower's attention: flash-attn where installed, else packed windows.

The tower attends within windows of unequal size. flash-attn takes them all in one call, and so does
`packed_windows` with what torch has; transformers' SDPA takes one after the other. The language
model has no such choice: a shared prefix brings its own attention, and a row of one report is plain
causal, which PyTorch's SDPA gives to its own flash kernel.
"""

from __future__ import annotations

import importlib.util

import torch

from rrgclinical.common.errors import UserError
from rrgpolicy.model.packed_windows import PACKED_WINDOWS

FLASH = "flash_attention_2"
CHOICES = ("auto", "packed", "sdpa", FLASH)


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
        return "needs the package flash-attn; pip install flash-attn --no-build-isolation"
    return None
