"""A GPU matches as the CPU does, bit for bit."""

from __future__ import annotations

import pytest
import torch

from rrgkern import ReportEntities, csrc, entity_match
from tests.rrgkern.entity_match.test_twin import clustered, side

pytestmark = pytest.mark.gpu


def on_gpu(z: ReportEntities) -> ReportEntities:
    return ReportEntities(*(tensor.cuda() for tensor in z))


@pytest.mark.parametrize("width", [1, 31, 32, 100, 768, 4097])
@pytest.mark.parametrize("draw", [side, clustered])
def test_matches_and_scores_are_equal(width: int, draw) -> None:
    assert csrc.why_not("entity_match", "cuda") is None, "build the extension for this GPU first"
    generator = torch.Generator().manual_seed(width)
    for most, pairs in ((41, 200), (2, 50), (500, 2)):
        sizes = torch.randint(0, most + 1, (2, pairs), generator=generator).tolist()
        options = (width, 3, generator) if draw is side else (width, generator)
        x, y = (draw(counts, *options) for counts in sizes)
        affinity = torch.rand(3, 3, generator=generator)
        wanted = entity_match(x, y, affinity=affinity, neg_weight=0.8717)
        for _ in range(2):
            found = entity_match(on_gpu(x), on_gpu(y), affinity=affinity.cuda(), neg_weight=0.8717)
            for field, other in zip(found, wanted, strict=True):
                assert torch.equal(field.cpu(), other)


def test_no_reports_at_all() -> None:
    generator = torch.Generator().manual_seed(0)
    none = on_gpu(side([], 5, 1, generator))
    assert entity_match(none, none).score.shape == (0,)
