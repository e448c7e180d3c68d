"""LN-DPO of each group's oracle against its members, forward and gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.harness import Agree, Bench
from rrgkern import PreferencePairs, oracle_pairs, preference_loss

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TAU = 0.1
MEMBERS = 8

bench = Bench("preference_loss")


def by_segments(logps: Tensor, ref: Tensor, lengths: Tensor, pairs: PreferencePairs) -> Tensor:
    """DPO on ragged log-probabilities as one writes it in PyTorch."""
    gains = torch.segment_reduce(logps - ref, "mean", lengths=lengths)
    margins = TAU * (gains[pairs.positive] - gains[pairs.negative])
    return -(pairs.weight * F.logsigmoid(margins)).sum()


@bench.provider("eager")
def eager(logps: Tensor, ref: Tensor, offsets: Tensor, pairs: PreferencePairs) -> Tensor:
    return torch.autograd.grad(by_segments(logps, ref, offsets.diff(), pairs), logps)[0]


@bench.provider("compiled")
def compiled(logps: Tensor, ref: Tensor, offsets: Tensor, pairs: PreferencePairs) -> Tensor:
    return torch.autograd.grad(_compiled(logps, ref, offsets.diff(), pairs), logps)[0]


_compiled = torch.compile(by_segments, dynamic=True)


@bench.provider("rrgkern")
def ours(logps: Tensor, ref: Tensor, offsets: Tensor, pairs: PreferencePairs) -> Tensor:
    loss = preference_loss(logps, ref, offsets, pairs, tau=TAU).loss
    return torch.autograd.grad(loss, logps)[0]


@pytest.mark.parametrize("prompts", [4, 64])
def test_preference_loss(benchmark, prompts):
    sequences = prompts * (MEMBERS + 1)
    tokens = 150 * sequences

    def make_inputs(seed: int) -> tuple[Tensor, Tensor, Tensor, PreferencePairs]:
        generator = torch.Generator().manual_seed(seed)
        # Reports of 50 to 250 tokens whose sum is the same for every seed.
        share = 50 + torch.multinomial(
            torch.ones(sequences), tokens - 50 * sequences, replacement=True, generator=generator
        ).bincount(minlength=sequences)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), share.cumsum(0)])
        logps, ref = -torch.rand(2, tokens, generator=generator)
        is_oracle = torch.zeros(sequences, dtype=torch.bool)
        is_oracle[:: MEMBERS + 1] = True
        pairs = oracle_pairs(is_oracle, torch.arange(0, sequences + 1, MEMBERS + 1))
        return (
            logps.to(DEVICE).requires_grad_(),
            ref.to(DEVICE),
            offsets.to(DEVICE),
            PreferencePairs(*(tensor.to(DEVICE) for tensor in pairs)),
        )

    bench.compare(
        benchmark,
        make_inputs,
        shape={"prompts": prompts, "members": MEMBERS, "tokens": tokens},
        dtype=torch.float32,
        case="LN-DPO, forward+backward",
        # logps and ref read, the coefficient written, read and written again scaled.
        bytes_moved=tokens * 5 * 4,
        agree=Agree(1, 1e-4),
    )
