"""The compiled match equals the reference bit for bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rrgkern import ReportEntities, csrc, entity_match
from rrgkern.entity_match.reference import entity_match_reference
from tests.rrgkern.entity_match.cases import many

pytestmark = pytest.mark.skipif(
    csrc.why_not("entity_match", "cpu") is not None,
    reason=str(csrc.why_not("entity_match", "cpu")),
)


def side(sizes: list[int], width: int, kinds: int, generator: torch.Generator) -> ReportEntities:
    total = sum(sizes)
    # Few directions, so that ties happen, with rows nearly orthogonal to others among them.
    palette = torch.randn(6, width, generator=generator, dtype=torch.float64)
    palette[1] = palette[0] + 1e-7 * palette[2]
    rows = torch.nn.functional.normalize(palette, dim=1).float()
    return ReportEntities(
        torch.tensor([0, *sizes]).cumsum(0),
        torch.randint(-1, 2, (total,), generator=generator, dtype=torch.int8),
        rows[torch.randint(0, 6, (total,), generator=generator)],
        torch.randint(0, kinds, (total,), generator=generator, dtype=torch.int8),
    )


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=5),
    st.sampled_from([1, 2, 31, 32, 33, 64, 100]),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.3612, 0.8717]),
    st.integers(0, 2**31),
)
@many
def test_matches_and_scores_are_equal(
    sizes: list[tuple[int, int]], width: int, kinds: int, neg_weight: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, y = (side([pair[k] for pair in sizes], width, kinds, generator) for k in (0, 1))
    affinity = torch.rand(kinds, kinds, generator=generator)
    match = entity_match(x, y, affinity=affinity, neg_weight=neg_weight)
    crossed = (affinity.double() * neg_weight).float()
    *best, scores = entity_match_reference(x, y, affinity, crossed)
    for field, wanted in zip(match, [*best, *scores.unbind(1)], strict=True):
        assert field.dtype == wanted.dtype
        assert torch.equal(field, wanted)
