"""TF-IDF weights of sampled reports: one call against a loop over reports."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from bench.harness import Bench
from rrgkern import tfidf_weights

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY, LENGTH, ALPHA = 4000, 150, 4.0

bench = Bench("token_weights", baseline="python loop")


@bench.provider("python loop", device="cpu")
def loop(token_ids: Tensor, offsets: Tensor, group_offsets: Tensor) -> Tensor:
    """DiTPO eq. 7 and 8 with a counter per report, as one would first write it."""
    ids, cuts, groups = token_ids.tolist(), offsets.tolist(), group_offsets.tolist()
    weights: list[float] = []
    for first, last in itertools.pairwise(groups):
        reports = [ids[cuts[s] : cuts[s + 1]] for s in range(first, last)]
        holders = Counter(token for report in reports for token in set(report))
        for report in reports:
            counts = Counter(report)
            weights += [
                1 + ALPHA * counts[t] / len(report) * math.log(len(reports) / holders[t])
                for t in report
            ]
    return torch.tensor(weights)


@bench.provider("rrgkern")
def ours(token_ids: Tensor, offsets: Tensor, group_offsets: Tensor) -> Tensor:
    return tfidf_weights(token_ids, offsets, group_offsets, alpha=ALPHA)


@pytest.mark.parametrize("groups", [4, 64])
def test_tfidf(benchmark, groups):
    members = 8

    def make_inputs(seed: int) -> tuple[Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(LENGTH // 2, LENGTH + 1, (groups * members,), generator=generator)
        # Squared uniforms: a few tokens are common, as in reports.
        draws = torch.rand(int(lengths.sum()), generator=generator).square() * VOCABULARY
        offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        group_offsets = torch.arange(groups + 1) * members
        return draws.long().to(DEVICE), offsets.to(DEVICE), group_offsets.to(DEVICE)

    bench.compare(
        benchmark,
        make_inputs,
        shape={"groups": groups, "members": members, "length": LENGTH},
        dtype=torch.int64,
        rounds=5,
    )
