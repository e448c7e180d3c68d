"""Choose the vision tower's attention: flash-attn where installed, else SDPA.

The tower attends within windows of unequal size. flash-attn takes them all in one call, SDPA one
after the other. The language model has no such choice: a shared prefix brings its own attention,
and a row of one report is plain causal, which PyTorch's SDPA gives to its own flash kernel.
"""

from __future__ import annotations

import importlib.util

import torch

from rrgtrain.errors import UserError

FLASH = "flash_attention_2"
CHOICES = ("auto", "sdpa", FLASH)


def vision_attention(asked: str, device: torch.device | str, dtype: torch.dtype) -> str:
    """Name the tower's attention for transformers: "sdpa" or "flash_attention_2".

    "auto" is flash-attn wherever it can run. Raises UserError, with the reason, where it is asked
    for and cannot.
    """
    if asked not in CHOICES:
        raise UserError(f"policy.vision_attn={asked}; use one of {', '.join(CHOICES)}")
    if asked == "sdpa":
        return "sdpa"
    missing = _missing(torch.device(device), dtype)
    if missing is None:
        return FLASH
    if asked == FLASH:
        raise UserError(f"policy.vision_attn={FLASH} {missing}, or use policy.vision_attn=auto")
    return "sdpa"


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
