"""Launches to compile ahead of time: the target vocabulary, and one that is not divisible."""

from __future__ import annotations

import torch

from rrgkern.token_logps.triton_forward import token_logps_fwd
from tests.rrgkern.aot.harness import Case


def _forward(vocabulary: int, dtype: torch.dtype, entropy: bool) -> None:
    logits = torch.empty(8192, vocabulary, dtype=dtype, device="meta")
    targets = torch.empty(8192, dtype=torch.int64, device="meta")
    token_logps_fwd(logits, targets, 0.7, entropy)


CASES = {
    "bf16": Case(lambda: _forward(151936, torch.bfloat16, False)),
    "bf16, entropy": Case(lambda: _forward(151936, torch.bfloat16, True)),
    "fp32, entropy": Case(lambda: _forward(151936, torch.float32, True)),
    "bf16, entropy, odd V": Case(lambda: _forward(151665, torch.bfloat16, True), streaming=False),
}
