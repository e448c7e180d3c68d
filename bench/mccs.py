"""The margin-based cosine of MRG-R1 on a batch of label vectors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bench.harness import Bench
from rrgkern import mccs
from rrgkern.mccs.reference import mccs_reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

bench = Bench("mccs")


@bench.provider("eager")
def eager(pred: Tensor, truth: Tensor) -> Tensor:
    return mccs_reference(pred, truth, 0.0, 0.0)


@bench.provider("compiled")
def compiled(pred: Tensor, truth: Tensor) -> Tensor:
    return _compiled(pred, truth, 0.0, 0.0)


_compiled = torch.compile(mccs_reference)


@bench.provider("rrgkern")
def ours(pred: Tensor, truth: Tensor) -> Tensor:
    return mccs(pred, truth)


@pytest.mark.parametrize("rows", [16, 512, 65536])
def test_mccs(benchmark, rows):
    def make_inputs(seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(0, 4, (2, rows, 14), generator=generator, dtype=torch.int8)
        pred, truth = ids.to(DEVICE).unbind()
        return pred, truth

    bench.compare(
        benchmark,
        make_inputs,
        shape={"rows": rows},
        dtype=torch.int8,
        bytes_moved=rows * (14 + 14 + 4),
    )
