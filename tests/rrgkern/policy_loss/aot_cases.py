"""Launches to compile ahead of time: each surrogate and level with everything given, and little."""

from __future__ import annotations

import torch

from rrgkern import PolicyLoss
from rrgkern.policy_loss.triton_policy_loss import launch
from tests.rrgkern.aot.harness import Case, per_row

TOKENS, SEQUENCES = 48000, 320


def run(
    spec: PolicyLoss,
    *,
    full: bool = True,
    per_token: bool = False,
    tokens: int = TOKENS,
    sequences: int = SEQUENCES,
    dtype: torch.dtype = torch.float32,
) -> None:
    def values(length: int, kind: torch.dtype = dtype) -> torch.Tensor:
        return per_row(length, kind)

    own = tokens if per_token else sequences
    optional = [values(tokens) for _ in range(5)] if full else [None] * 5
    flags = (values(sequences, torch.bool), values(tokens, torch.bool)) if full else (None, None)
    offsets = values(sequences + 1, torch.int64)
    launch(
        *(values(tokens), optional[4], values(own), offsets, values(own), *optional[:4], *flags),
        *(per_token, per_token, spec.encode()),
    )


def variant(surrogate: str, level: str, **fields: object) -> PolicyLoss:
    return PolicyLoss(
        surrogate=surrogate,
        ratio_level=level,
        beta=0.04,
        kl_ratio_weight=True,
        entropy_coef=0.01,
        **fields,
    )


# Accesses of 32 bits by design: wider ones need a compilation for numbers of tokens that 16
# divides, and one for all others.
CASES = {
    "on-policy": Case(lambda: run(PolicyLoss(), full=False), streaming=False, kernels=2),
    "clip": Case(lambda: run(variant("clip", "token")), streaming=False, kernels=2),
    "cispo": Case(lambda: run(variant("cispo", "token")), streaming=False, kernels=2),
    "sapo": Case(lambda: run(variant("sapo", "token")), streaming=False, kernels=2),
    "reinforce, sampler per sequence": Case(
        lambda: run(variant("reinforce", "token", sampler_level="sequence", sampler_mode="mask")),
        streaming=False,
        kernels=3,
    ),
    "vespo": Case(lambda: run(variant("vespo", "token")), streaming=False, kernels=3),
    "clip, sequence, per token": Case(
        lambda: run(variant("clip", "sequence"), per_token=True), streaming=False, kernels=3
    ),
    "cispo, sequence": Case(lambda: run(variant("cispo", "sequence")), streaming=False, kernels=3),
    "sapo, sequence": Case(lambda: run(variant("sapo", "sequence")), streaming=False, kernels=3),
    "clip, sequence_token": Case(
        lambda: run(variant("clip", "sequence_token")), streaming=False, kernels=3
    ),
}
