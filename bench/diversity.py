"""Diversity and draw for a data set of the size of MIMIC-CXR."""

from __future__ import annotations

import torch
from torch import Tensor

from bench.harness import Bench
from rrgkern import diagnostic_diversity, rank_sample
from rrgkern.diversity.api import deviations
from rrgkern.diversity.reference import diagnostic_diversity_reference, rank_sample_reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STUDIES, SAMPLES, CLASSES, SHARE = 200_000, 10, 14, 0.2

diversity, draw = Bench("diversity"), Bench("diversity")


@diversity.provider("eager")
def eager(positive: Tensor) -> Tensor:
    factor, radical, roots = deviations(SAMPLES)
    tables = (torch.tensor(factor), torch.tensor(radical), torch.tensor(roots, dtype=torch.float64))
    return diagnostic_diversity_reference(
        positive.view(torch.uint8), *(table.to(DEVICE) for table in tables)
    )


@diversity.provider("torch std")
def by_std(positive: Tensor) -> Tensor:
    """The definition in one line, in fp32: equal diversities may differ in the last bits."""
    return positive.float().std(1, correction=0).sum(1)


@diversity.provider("rrgkern")
def ours(positive: Tensor) -> Tensor:
    return diagnostic_diversity(positive)


@draw.provider("eager")
def draw_eager(values: Tensor) -> tuple[Tensor, Tensor]:
    return rank_sample_reference(values, 7, int(SHARE * STUDIES))


@draw.provider("rrgkern")
def draw_ours(values: Tensor) -> tuple[Tensor, Tensor]:
    return rank_sample(values, SHARE, seed=7)


def labels(seed: int) -> tuple[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rates = torch.rand(STUDIES, 1, CLASSES, generator=generator) ** 3
    return ((torch.rand(STUDIES, SAMPLES, CLASSES, generator=generator) < rates).to(DEVICE),)


def test_diversity(benchmark):
    diversity.compare(
        benchmark,
        labels,
        shape={"studies": STUDIES, "samples": SAMPLES, "classes": CLASSES},
        dtype=torch.bool,
        case="diversity",
        bytes_moved=STUDIES * (SAMPLES * CLASSES + 8),
    )


def test_rank_sample(benchmark):
    draw.compare(
        benchmark,
        lambda seed: (diagnostic_diversity(*labels(seed)),),
        shape={"studies": STUDIES, "share": SHARE},
        dtype=torch.float64,
        case="draw",
        bytes_moved=STUDIES * 32,
    )
