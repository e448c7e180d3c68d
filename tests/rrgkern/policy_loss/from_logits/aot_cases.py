"""Launches to compile ahead of time: the sweep over the rows, and the upstream factor."""

from __future__ import annotations

import torch

from rrgkern import PolicyLoss
from rrgkern.policy_loss.from_logits.triton_launch import policy_loss_from_logits_scale_, sweep_rows
from rrgkern.policy_loss.inputs import LogitsInputs, PolicyInputs
from tests.rrgkern.aot.harness import Case, per_row

VOCABULARY, ROWS, SEQUENCES = 151936, 8192, 54
# 4.3 TB/s for 132 multiprocessors at a latency of 0.6 to 0.8 us take 20 to 26 KB each (H200),
# 7.2 TB/s for 148 take 29 to 39 KB (B200): estimates.
UNDER_WAY = 32 * 1024
EVERYTHING = {"beta": 0.04, "kl_ratio_weight": True, "entropy_coef": 0.01}


def sweep(
    spec: PolicyLoss,
    *,
    full: bool = True,
    inplace: bool = False,
    per_token: bool = False,
    vocabulary: int = VOCABULARY,
    dtype: torch.dtype = torch.bfloat16,
    rows: int = ROWS,
    sequences: int = SEQUENCES,
    temperature: float = 0.9,
) -> None:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    logits = torch.empty(rows, vocabulary, dtype=dtype, device="meta")

    def values(length: int, kind: torch.dtype = wide) -> torch.Tensor:
        return per_row(length, kind)

    own = values(rows if per_token else sequences)
    tensors = [own, values(sequences + 1, torch.int64), own]
    tensors += [values(rows) for _ in range(4)] if full else [None] * 4
    tensors += [values(sequences, torch.bool), values(rows, torch.bool)] if full else [None] * 2
    policy = PolicyInputs(*tensors, per_token, per_token, spec.encode())
    targets, entropy = values(rows, torch.int64), spec.entropy_coef != 0
    call = LogitsInputs(logits, targets, policy, temperature, entropy)
    sweep_rows(call, logits if inplace else torch.empty_like(logits))


def factor(vocabulary: int, dtype: torch.dtype, rows: int = ROWS) -> None:
    gradient = torch.empty(rows, vocabulary, dtype=dtype, device="meta")
    # The gradient of one loss of a stack, which lies where a slice may.
    upstream = per_row(rows, torch.float32)[0]
    policy_loss_from_logits_scale_(
        gradient, torch.empty(rows, dtype=torch.bool, device="meta"), upstream
    )


# Rows of an odd vocabulary are not aligned; fp64 is there to be exact.
CASES = {
    "clip, everything, in place": Case(
        lambda: sweep(PolicyLoss(**EVERYTHING), inplace=True), bare=True, under_way=UNDER_WAY
    ),
    "sapo, everything": Case(
        lambda: sweep(PolicyLoss(surrogate="sapo", **EVERYTHING)), bare=True, under_way=UNDER_WAY
    ),
    "cispo, per token, fp32": Case(
        lambda: sweep(PolicyLoss(surrogate="cispo"), per_token=True, dtype=torch.float32),
        bare=True,
        under_way=UNDER_WAY,
    ),
    "clip, everything, V = 32768": Case(
        lambda: sweep(PolicyLoss(**EVERYTHING), vocabulary=32768, inplace=True), under_way=UNDER_WAY
    ),
    "clip, everything, odd V": Case(
        lambda: sweep(PolicyLoss(**EVERYTHING), vocabulary=151665), streaming=False, bare=True
    ),
    "clip, everything, fp64": Case(
        lambda: sweep(PolicyLoss(**EVERYTHING), dtype=torch.float64), streaming=False, bare=True
    ),
    "upstream gradient": Case(lambda: factor(VOCABULARY, torch.bfloat16)),
}
