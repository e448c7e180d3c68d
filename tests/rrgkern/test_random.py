"""The generator against its published vectors, and the fairness of its draws."""

from __future__ import annotations

import pytest
import torch

from rrgkern import philox_seed
from rrgkern.cosines import LANES, cosines, lanes_of
from rrgkern.random import philox4x32, uniform_below
from tests.rrgkern.many_cases import Cases, for_all
from tests.tolerance import assert_close_to_truth

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers_of_random123(counter, key, words) -> None:
    assert philox4x32(counter, key) == words


@pytest.mark.parametrize("n", [2, 3, 7])
def test_draws_are_uniform(n: int) -> None:
    draws, counts = 20_000, [0] * n
    for seed in range(draws):
        counts[uniform_below(n, philox_seed(0, 0, seed, 0), 0)] += 1
    expected = draws / n
    chi_squared = sum((count - expected) ** 2 / expected for count in counts)
    assert chi_squared < 25  # beyond the 99.9th percentile for 6 degrees of freedom; fixed draws


draws = Cases(
    lambda choices: (max(1, choices.word(choices.below(5))), choices.seed(), choices.word(1)), 14
)


@for_all(draws, batch=100)
def test_draws_stay_in_range_and_reject_what_would_be_unfair(
    cases: list[tuple[int, int, int]],
) -> None:
    for n, seed, edit in cases:
        assert 0 <= uniform_below(n, seed, edit) < n
        # Without rejection the draw would be the high half of the first product.
        first = philox4x32((edit, 0, 0, 0), (seed & ONES, (seed >> 32) & ONES))[0] * n
        if (first & ONES) >= 2**32 % n:
            assert uniform_below(n, seed, edit) == first >> 32


def test_a_rejected_draw_takes_the_next_block() -> None:
    n = 2**31 + 1  # nearly half of all words are rejected
    products = {
        seed: [philox4x32((0, draw, 0, 0), (seed, 0))[0] * n for draw in (0, 1)]
        for seed in range(50)
    }
    once = [
        seed
        for seed, (first, second) in products.items()
        if (first & ONES) < 2**32 % n <= (second & ONES)
    ]
    assert once
    for seed in once:
        assert uniform_below(n, seed, 0) == products[seed][1] >> 32


def test_seeds_differ_in_every_argument_and_fit_int64() -> None:
    base = (3, 5, 7, 1)
    changed = [tuple(v + (k == place) for k, v in enumerate(base)) for place in range(4)]
    found = {philox_seed(*arguments) for arguments in [base, *changed, (5, 3, 7, 1), (3, 7, 5, 1)]}
    assert len(found) == 7
    assert all(0 <= seed < 2**63 for seed in found)
    assert philox_seed(-4, 0, 2**64 - 1, 2**32 - 1) >= 0


# The fixed order of the dot products: repeated here in Python floats, and close to the truth.
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


def test_cosines_are_as_near_the_truth_as_rounding_allows() -> None:
    x, y = unit_rows(40, 768, 3), unit_rows(50, 768, 4)
    truth = x.double() @ y.double().T
    assert_close_to_truth(cosines(lanes_of(x), lanes_of(y)), x @ y.T, truth)
    assert torch.equal(cosines(lanes_of(x), lanes_of(y)), truth.float())


def test_no_width_and_no_rows() -> None:
    narrow = lanes_of(torch.ones(2, 0)), lanes_of(torch.ones(3, 0))
    assert torch.equal(cosines(*narrow), torch.zeros(2, 3))
    assert cosines(lanes_of(torch.ones(0, 5)), lanes_of(torch.ones(3, 5))).shape == (0, 3)
