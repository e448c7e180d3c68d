"""The compiled match equals the reference bit for bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st

from rrgkern import ReportEntities, csrc, entity_match
from rrgkern.entity_match.cosines import cosines, lanes_of
from rrgkern.entity_match.op import empty_results
from rrgkern.entity_match.reference import entity_match_reference
from tests.rrgkern.many_cases import Cases, for_all

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


sizes = Cases(lambda choices: (choices.below(8), choices.below(8), choices.word(2)), 4)


@for_all(
    sizes,
    width=st.sampled_from([1, 2, 31, 32, 33, 64, 100]),
    kinds=st.integers(1, 4),
    neg_weight=st.sampled_from([0.0, 0.3612, 0.8717, 1.5]),
)
def test_matches_and_scores_are_equal(
    cases: list[tuple[int, int, int]], width: int, kinds: int, neg_weight: float
) -> None:
    generator = torch.Generator().manual_seed(sum(seed for *_, seed in cases))
    x, y = (side([case[k] for case in cases], width, kinds, generator) for k in (0, 1))
    assert_twins_agree(x, y, torch.rand(kinds, kinds, generator=generator), neg_weight)


@pytest.mark.parametrize(
    ("sizes", "width"),
    [
        ([(1, 1)], 1),
        ([(500, 500)], 17),
        ([(500, 1), (0, 500), (1, 500)], 64),
        ([(3, 5), (0, 0)], 4096),
        ([(5, 4), (1, 2)], 4097),
        ([(6, 7)], 0),
    ],
)
def test_sizes_from_one_end_to_the_other(sizes: list[tuple[int, int]], width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    x, y = (side([pair[k] for pair in sizes], max(width, 1), 3, generator) for k in (0, 1))
    if width == 0:
        with pytest.raises(ValueError, match="x.embedding row 0 is of length 0"):
            entity_match(*(z._replace(embedding=z.embedding[:, :0]) for z in (x, y)))
        return
    assert_twins_agree(x, y, torch.rand(3, 3, generator=generator), 0.3612)


def assert_twins_agree(
    x: ReportEntities, y: ReportEntities, affinity: torch.Tensor, neg_weight: float
) -> None:
    match = entity_match(x, y, affinity=affinity, neg_weight=neg_weight)
    crossed = (affinity.double() * neg_weight).float()
    *best, scores = entity_match_reference(x, y, affinity, crossed)
    for field, wanted in zip(match, [*best, *scores.unbind(1)], strict=True):
        assert field.dtype == wanted.dtype
        assert torch.equal(field, wanted)


@pytest.mark.parametrize("width", [1, 7, 8, 31, 32, 33, 64, 100, 768, 4097])
def test_every_kind_of_processor_takes_the_same_cosines(width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    for rows, columns in ((1, 1), (3, 9), (4, 8), (130, 5), (0, 3)):
        a, b = (side([count], width, 1, generator).embedding for count in (rows, columns))
        expected = cosines(lanes_of(a), lanes_of(b))
        kind = kinds = 0
        while kind <= kinds:
            found = torch.full((rows, columns), torch.nan)
            kinds = csrc.load().entity_match_cosines(a, b, found, kind) - 1
            assert torch.equal(found, expected), f"kind {kind} of {kinds + 1}"
            kind += 1


def clustered(sizes: list[int], width: int, generator: torch.Generator) -> ReportEntities:
    """Six directions, each left by anything between nothing and itself: many cosines differ by less
    than 16 bits can tell, and a few are equal."""
    total = sum(sizes)
    directions = torch.randn(6, width, generator=generator, dtype=torch.float64) / width**0.5
    distance = 10.0 ** (-9 * torch.rand(total, 1, generator=generator, dtype=torch.float64))
    rows = directions[torch.randint(0, 6, (total,), generator=generator)]
    rows += distance * torch.randn(total, width, generator=generator) / width**0.5
    return side(sizes, width, 3, generator)._replace(
        embedding=torch.nn.functional.normalize(rows, dim=1).float()
    )


@pytest.mark.parametrize("width", [96, 97, 300, 768, 2047])
def test_the_screen_changes_no_bit_on_any_processor_and_any_number_of_threads(width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    sizes = torch.randint(0, 41, (2, 24), generator=generator).tolist()
    x, y = (clustered(counts, width, generator) for counts in sizes)
    # Half of y turned away: what is far from all leaves much to choose among.
    away = torch.rand(len(y.presence), 1, generator=generator) < 0.5
    y = y._replace(embedding=torch.where(away, y.embedding.flip(1), y.embedding))
    affinity = torch.rand(3, 3, generator=generator)
    tables = affinity, (affinity.double() * 0.3612).float()
    wanted = entity_match_reference(x, y, *tables)
    one = torch.ones(1, 1)
    for kind in range(csrc.load().entity_match_cosines(one, one, torch.empty(1, 1), 0)):
        for threads in (1, 3):
            found = empty_results(x.offsets, x.presence, y.presence)
            assert csrc.load().entity_match_cpu(*x, *y, *tables, *found, threads, kind)
            assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))
