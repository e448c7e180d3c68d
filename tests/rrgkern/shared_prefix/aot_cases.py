"""Decoding steps to compile ahead of time: widths of a head, caps, windows, masks of each kind."""

from __future__ import annotations

from typing import Any

import torch

from rrgkern.shared_prefix import DecodeStep
from rrgkern.shared_prefix.triton_decode import launch
from tests.rrgkern.aot.harness import Case

BF16 = torch.bfloat16


def decode(
    key_heads: int,
    repeats: int,
    width: int,
    dtype: torch.dtype = BF16,
    *,
    members: int = 10,
    left: bool = False,
    mask: torch.dtype | None = torch.bool,
    **options: Any,
) -> None:
    prompts, length, room = 8, 1001, 128
    rows, heads = prompts * members - left, key_heads * repeats

    def meta(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
        return torch.empty(*shape, dtype=dtype, device="meta")

    step = DecodeStep(
        meta(rows, heads, width),
        *(meta(rows, key_heads, width) for _ in range(2)),
        *(meta(prompts, key_heads, length, width) for _ in range(2)),
        *(meta(rows, key_heads, room, width) for _ in range(2)),
        meta(1, dtype=torch.int64),
        members=meta(prompts, members, dtype=torch.int64) if left else None,
        mask=None if mask is None else meta(rows, length + room, dtype=mask),
        scale=width**-0.5,
        **options,
    )
    launch(*step)


# Not streaming: what is loaded ahead fills the shared memory, so few warps fit.
MARKS: dict[str, Any] = {"streaming": False, "matrix": True, "least": 80}
CASES = {
    "Qwen2.5-VL-3B": Case(lambda: decode(2, 8, 128), **MARKS),
    "rows have left": Case(lambda: decode(4, 7, 128, left=True), **MARKS),
    "Gemma 3": Case(lambda: decode(4, 2, 256, window=1024), **MARKS),
    "one head": Case(lambda: decode(8, 1, 256, mask=BF16, softcap=50.0), **MARKS),
    "gpt-oss": Case(
        lambda: decode(8, 8, 64, mask=BF16, sinks=torch.empty(64, dtype=BF16, device="meta")),
        **MARKS,
    ),
    "fp16, no mask": Case(lambda: decode(2, 8, 128, torch.float16, mask=None), **MARKS),
    "fp32": Case(lambda: decode(2, 4, 64, torch.float32, mask=None), streaming=False),
}
