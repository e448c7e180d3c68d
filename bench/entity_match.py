"""Matching the entities of one step's reports: 320 pairs of ragged reports."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from bench.harness import Bench
from rrgkern import EntityMatch, ReportEntities, entity_match

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OPPOSITE_WEIGHT = 0.3612

bench = Bench("entity_match")


@bench.provider("eager")
def eager(x: ReportEntities, y: ReportEntities) -> Tensor:
    """Pair by pair in fp32, as the metric packages do; the score only."""
    scores = []
    bounds = zip(x.offsets.tolist(), y.offsets.tolist(), strict=True)
    for (a, c), (b, d) in pairwise(bounds):
        if a == b or c == d:
            scores.append(torch.tensor(0.5, device=DEVICE))
            continue
        cosine = x.embedding[a:b] @ y.embedding[c:d].T
        means = []
        for matrix, mine, theirs in (
            (cosine, x.presence[a:b], y.presence[c:d]),
            (cosine.T, y.presence[c:d], x.presence[a:b]),
        ):
            best, index = matrix.max(1)
            other = theirs[index]
            crosses = (mine >= 0) & (other >= 0) & (mine != other)
            means.append(torch.where(crosses, best * OPPOSITE_WEIGHT, best).mean())
        scores.append(2 * means[0] * means[1] / (means[0] + means[1]))
    return torch.stack(scores)


@bench.provider("padded bmm")
def padded(x: ReportEntities, y: ReportEntities) -> Tensor:
    """All pairs at once, padded to the longest report; the score only."""
    (a, mine, has_x), (b, theirs, has_y) = pad(x), pad(y)
    cosine = a @ b.transpose(1, 2)
    cosine = cosine.masked_fill(~(has_x[:, :, None] & has_y[:, None, :]), -torch.inf)
    means = []
    for matrix, own, other, has in (
        (cosine, mine, theirs, has_x),
        (cosine.transpose(1, 2), theirs, mine, has_y),
    ):
        best, index = matrix.max(2)
        found = other.gather(1, index)
        crosses = (own >= 0) & (found >= 0) & (own != found)
        gain = torch.where(crosses, best * OPPOSITE_WEIGHT, best).masked_fill(~has, 0.0)
        means.append(gain.sum(1) / has.sum(1))
    score = 2 * means[0] * means[1] / (means[0] + means[1])
    return torch.where(has_x.any(1) & has_y.any(1), score, 0.5)


@bench.provider("rrgkern")
def ours(x: ReportEntities, y: ReportEntities) -> EntityMatch:
    return entity_match(x, y)


def pad(z: ReportEntities) -> tuple[Tensor, Tensor, Tensor]:
    counts = z.offsets.diff()
    embedding = pad_sequence(z.embedding.split(counts.tolist()), batch_first=True)
    presence = pad_sequence(z.presence.split(counts.tolist()), batch_first=True, padding_value=-1)
    places = torch.arange(embedding.shape[1], device=counts.device)
    return embedding, presence, places < counts[:, None]


def reports(count: int, entities: int, width: int, seed: int) -> ReportEntities:
    """Between one entity and twice as many as asked for, uniformly."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(1, 2 * entities, (count,), generator=generator)
    total = int(counts.sum())
    rows = torch.randn(total, width, generator=generator)
    fields = (
        torch.nn.functional.pad(counts.cumsum(0), (1, 0)),
        torch.randint(-1, 2, (total,), generator=generator, dtype=torch.int8),
        torch.nn.functional.normalize(rows, dim=1),
    )
    return ReportEntities(*(field.to(DEVICE) for field in fields))


@pytest.mark.parametrize("width", [384, 768])
def test_entity_match(benchmark, width):
    count, entities = 320, 12

    def make_inputs(seed: int) -> tuple[ReportEntities, ReportEntities]:
        return (
            reports(count, entities, width, 2 * seed),
            reports(count, entities, width, 2 * seed + 1),
        )

    bench.compare(
        benchmark,
        make_inputs,
        shape={"pairs": count, "entities": entities, "width": width},
        dtype=torch.float32,
        bytes_moved=2 * count * entities * width * 4,
        flops=2 * width * count * entities * entities,
    )
