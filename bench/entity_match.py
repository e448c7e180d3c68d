"""Best matches between the entities of report pairs: one ragged call against the usual ways."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bench.harness import Bench
from rrgkern import ReportEntities, entity_match

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PAIRS, WIDTH = 320, 768

bench = Bench("entity_match", baseline="padded bmm")


def entities(sizes: Tensor, generator: torch.Generator) -> ReportEntities:
    """Random unit rows for reports of these sizes."""
    count = int(sizes.sum())
    rows = torch.randn(count, WIDTH, generator=generator)
    return ReportEntities(
        offsets=torch.nn.functional.pad(sizes.cumsum(0), (1, 0)).to(DEVICE),
        presence=torch.randint(0, 2, (count,), generator=generator, dtype=torch.int8).to(DEVICE),
        embedding=torch.nn.functional.normalize(rows, dim=1).to(DEVICE),
    )


@bench.provider("padded bmm")
def padded(x: ReportEntities, y: ReportEntities) -> tuple[Tensor, Tensor]:
    """Reports padded to the longest, one batched product, two maxima."""
    sides = []
    for z in (x, y):
        sizes = z.offsets.diff().tolist()
        sides.append(torch.nn.utils.rnn.pad_sequence(z.embedding.split(sizes), batch_first=True))
    cosine = torch.bmm(sides[0], sides[1].transpose(1, 2))
    for side, z in enumerate((x, y)):
        size = cosine.shape[side + 1]
        missing = torch.arange(size, device=cosine.device) >= z.offsets.diff()[:, None]
        cosine = cosine.masked_fill(missing.unsqueeze(2 - side), -torch.inf)
    return cosine.max(2).values, cosine.max(1).values


@bench.provider("pair by pair")
def loop(x: ReportEntities, y: ReportEntities) -> list[tuple[Tensor, Tensor]]:
    found = []
    for left, right in zip(
        x.embedding.split(x.offsets.diff().tolist()),
        y.embedding.split(y.offsets.diff().tolist()),
        strict=True,
    ):
        cosine = left @ right.T
        found.append((cosine.max(1).values, cosine.max(0).values))
    return found


@bench.provider("rrgkern")
def ours(x: ReportEntities, y: ReportEntities) -> Tensor:
    return entity_match(x, y).score


@pytest.mark.parametrize("sizes", ["20 each", "1 to 40"])
def test_entity_match(benchmark, sizes):
    def make_inputs(seed: int) -> tuple[ReportEntities, ReportEntities]:
        generator = torch.Generator().manual_seed(seed)

        def draw() -> Tensor:
            if sizes == "20 each":
                return torch.full((PAIRS,), 20)
            return torch.randint(1, 41, (PAIRS,), generator=generator)

        return entities(draw(), generator), entities(draw(), generator)

    bench.compare(
        benchmark,
        make_inputs,
        shape={"pairs": PAIRS, "entities": sizes, "width": WIDTH},
        dtype=torch.float32,
        rounds=5,
    )
