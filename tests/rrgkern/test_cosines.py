"""The fixed order of the dot products: repeated here in Python floats, and close to the truth."""

from __future__ import annotations

import pytest
import torch

from rrgkern import ReportEntities, entity_match
from rrgkern.cosines import LANES, cosines, lanes_of
from tests.rrgkern.many_cases import Cases, for_all
from tests.tolerance import assert_close_to_truth


def by_hand(a: list[float], b: list[float]) -> float:
    """Lanes summed front to back, then added in halves."""
    lanes = [0.0] * LANES
    for place, (left, right) in enumerate(zip(a, b, strict=True)):
        lanes[place % LANES] += left * right
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[k] + lanes[k + half] for k in range(half)]
    return float(torch.tensor(lanes[0], dtype=torch.float64).float())


def unit_rows(count: int, width: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, width, dtype=torch.float64, generator=generator)
    # Some rows nearly orthogonal, where the order of a sum shows most.
    rows[::2] *= torch.logspace(0, -6, width, dtype=torch.float64)
    return torch.nn.functional.normalize(rows, dim=1).float()


@for_all(Cases(lambda choices: (1 + choices.below(130), choices.word(4)), 5))
def test_cosines_are_the_fixed_sum_bit_for_bit(cases: list[tuple[int, int]]) -> None:
    for width, seed in cases:
        rows = unit_rows(2, width, seed)
        matrix = cosines(lanes_of(rows), lanes_of(rows))
        assert matrix.dtype == torch.float32
        assert torch.equal(matrix, matrix.T)
        assert matrix.tolist() == [[by_hand(a, b) for b in rows.tolist()] for a in rows.tolist()]


@pytest.mark.parametrize("width", [1, 31, 32, 33, 384, 768])
def test_the_op_takes_the_same_cosines(width: int) -> None:
    x, y = unit_rows(5, width, 1), unit_rows(7, width, 2)
    offsets = [torch.tensor([0, len(rows)]) for rows in (x, y)]
    present = [torch.ones(len(rows), dtype=torch.int8) for rows in (x, y)]
    match = entity_match(
        ReportEntities(offsets[0], present[0], x), ReportEntities(offsets[1], present[1], y)
    )
    matrix = cosines(lanes_of(x), lanes_of(y))
    assert torch.equal(match.cosine_x[:, 0], matrix.amax(1))
    assert torch.equal(match.cosine_y[:, 0], matrix.amax(0))
    assert torch.equal(match.index_x[:, 0].long(), matrix.argmax(1))


def test_cosines_are_as_near_the_truth_as_rounding_allows() -> None:
    x, y = unit_rows(40, 768, 3), unit_rows(50, 768, 4)
    truth = x.double() @ y.double().T
    assert_close_to_truth(cosines(lanes_of(x), lanes_of(y)), x @ y.T, truth)
    assert torch.equal(cosines(lanes_of(x), lanes_of(y)), truth.float())


def test_no_width_and_no_rows() -> None:
    narrow = lanes_of(torch.ones(2, 0)), lanes_of(torch.ones(3, 0))
    assert torch.equal(cosines(*narrow), torch.zeros(2, 3))
    assert cosines(lanes_of(torch.ones(0, 5)), lanes_of(torch.ones(3, 5))).shape == (0, 3)
