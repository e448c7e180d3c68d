"""The compiled match equals the reference bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import strategies as st

from rrgkern import ReportEntities, csrc, entity_match
from rrgkern.cosines import cosines, lanes_of
from rrgkern.entity_match.inputs import MatchTables
from rrgkern.entity_match.op import empty_results
from rrgkern.entity_match.reference import entity_match_reference
from tests.rrgkern.many_cases import Cases, for_all

pytestmark = pytest.mark.skipif(
    csrc.why_not("entity_match", "cpu") is not None, reason=str(csrc.why_not("entity_match", "cpu"))
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
    *best, scores = entity_match_reference(x, y, MatchTables(affinity, crossed))
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
    assert_every_processor_agrees(x, y, torch.rand(3, 3, generator=generator))


def assert_every_processor_agrees(
    x: ReportEntities, y: ReportEntities, affinity: torch.Tensor
) -> None:
    tables = affinity, (affinity.double() * 0.3612).float()
    wanted = entity_match_reference(x, y, MatchTables(*tables))
    for fine, found in on_every_processor(x, y, tables):
        assert fine
        assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))


def on_every_processor(
    x: ReportEntities, y: ReportEntities, tables: tuple[torch.Tensor, torch.Tensor]
) -> Iterator[tuple[bool, tuple[torch.Tensor, ...]]]:
    """Tell whether the inputs were fine and what was found, by each kind of processor here."""
    one = torch.ones(1, 1)
    for kind in range(csrc.load().entity_match_cosines(one, one, torch.empty(1, 1), 0)):
        for threads in (1, 3):
            found = empty_results(x.offsets, x.presence, y.presence)
            fine = csrc.load().entity_match_cpu(*x, *y, *tables, *found, threads, kind)
            yield fine, found


def one_report(rows: torch.Tensor) -> ReportEntities:
    """A report of present entities of one kind with these embeddings."""
    ones = torch.ones(len(rows), dtype=torch.int8)
    return ReportEntities(torch.tensor([0, len(rows)]), ones, rows.float(), 0 * ones)


@pytest.mark.parametrize("width", [96, 768])
def test_the_screen_keeps_what_rounding_turns_around(width: int) -> None:
    """Rows whose 16-bit products differ by nearly all that rounding can do, the other way round
    than their cosines: `best` is nearer to `row` than `next_best` is."""
    scale, off = 32000.0, 0.49
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(width // 2)
    along, across = 0.3 * scale / width**0.5, 0.95 * scale / width**0.5
    # The integer that each component is rounded to, and what rounding takes from it.
    row = (torch.full_like(sign, scale / width**0.5).round() - off * sign) / scale
    next_best = ((along + across * sign).round() - off) / scale
    best = ((along - across * sign).round() + off) / scale
    steps = int((row @ (best - next_best)) / row.mean() * scale) - 2
    best -= steps // width / scale
    best[: steps % width] -= 1 / scale
    assert 0 < row @ (best - next_best) < 6 * row.mean() / scale
    integers = [(scale * z.float()).round().double() for z in (row, best, next_best)]
    turned = integers[0] @ (integers[2] - integers[1])
    assert turned > 0.92 * 2.04 * scale * width**0.5
    # Near neither: they make it a choice, and one that pays.
    others = torch.randn(12, width, generator=torch.Generator().manual_seed(width)).double()
    others -= others.reshape(12, -1, 2).mean(1).repeat(1, width // 2)
    others = torch.nn.functional.normalize(others, dim=1)
    x = one_report(torch.cat([row[None], best[None], others[:6]]))
    y = one_report(torch.cat([next_best[None], best[None], others[6:]]))
    assert entity_match(x, y).index_x[:2, 0].tolist() == [1, 1]
    assert_every_processor_agrees(x, y, torch.ones(1, 1))


@pytest.mark.parametrize("width", [96, 97])
def test_the_longest_component_fits_sixteen_bits(width: int) -> None:
    """The last is rounded on its own where the columns do not fill a register."""
    axes = torch.eye(width)
    mixed, near = 0.8 * axes[0] + 0.6 * axes[-1], 0.75 * axes[0] + 0.6614 * axes[1]
    longest = 1.005 * axes[-1] + 0.09 * axes[5]  # of length 1.009
    # Each of the others is one row's match alone, or all would be taken and none screened.
    x = one_report(torch.cat([mixed[None], axes[-1:], axes[2:8]]))
    y = one_report(torch.cat([near[None], longest[None], axes[2:8]]))
    # Cut down to 16 bits, `longest` would be less like `mixed` than `near` is: 0.603 and 0.600.
    assert entity_match(x, y).index_x[0, 0] == 1
    assert_every_processor_agrees(x, y, torch.ones(1, 1))


@pytest.mark.parametrize("width", [8, 96])
@pytest.mark.parametrize(
    ("length", "fine"), [(0.985, False), (0.995, True), (1.005, True), (1.015, False)]
)
def test_a_hundredth_is_what_a_length_may_be_off(width: int, length: float, fine: bool) -> None:
    """With 96 columns it is the screen that measures."""
    rows = torch.eye(width)[:8]
    changed = rows * torch.ones(8, 1).index_fill(0, torch.tensor([5]), length)
    tables = torch.ones(1, 1), torch.ones(1, 1)
    for x, y in ((rows, changed), (changed, rows)):
        runs = on_every_processor(one_report(x), one_report(y), tables)
        assert {said for said, _ in runs} == {fine}


# A GPU matches as the CPU does, bit for bit.


def on_gpu(z: ReportEntities) -> ReportEntities:
    return ReportEntities(*(tensor.cuda() for tensor in z))


@pytest.mark.gpu
@pytest.mark.parametrize("width", [1, 31, 32, 100, 768, 4097])
@pytest.mark.parametrize("draw", [side, clustered])
def test_a_gpu_matches_as_the_cpu(width: int, draw) -> None:
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


@pytest.mark.gpu
def test_no_reports_at_all() -> None:
    generator = torch.Generator().manual_seed(0)
    none = on_gpu(side([], 5, 1, generator))
    assert entity_match(none, none).score.shape == (0,)
