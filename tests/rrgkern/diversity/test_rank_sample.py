"""The draw by rank: exact for a seed, and fair."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch

from rrgkern import csrc, rank_sample
from rrgkern.diversity import reference as reference_module
from rrgkern.diversity.reference import plain_log, rank_sample_reference
from tests.mutants import survivors
from tests.rrgkern.many_cases import Cases, Choices, for_all

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
LEVELS = [0.0, 0.1, 0.3, 0.4, 0.4, 0.7, 1.3, -0.0]


def some_draw(choices: Choices) -> tuple[tuple[float, ...], int, float]:
    """A few levels of diversity, so that ties are common; the seed; the share."""
    diversity = tuple(choices.of(LEVELS) for _ in range(choices.below(60)))
    return diversity, choices.seed(), (1 + choices.below(100)) / 100


@for_all(Cases(some_draw, 70))
def test_every_draw(cases: list) -> None:
    for diversity, seed, share in cases:
        values = torch.tensor(diversity, dtype=torch.float64)
        index, rank = rank_sample(values, share, seed=seed)
        # So many, all different, ranked as their diversity is.
        wanted = min(len(diversity), max(1, math.floor(share * len(diversity) + 0.5)))
        assert len(index) == len(set(index.tolist())) == wanted
        assert sorted(rank.tolist()) == list(range(1, len(diversity) + 1))
        by_rank = values[rank.argsort()].tolist()
        assert by_rank == sorted(by_rank, reverse=True)
        # The same once more, in fp32, from the reference; a shorter draw is a prefix.
        again = rank_sample_reference(values, seed, wanted)
        assert torch.equal(index, again[0]) and torch.equal(rank, again[1])
        half = max(1, math.floor(0.5 * share * len(values) + 0.5))
        assert torch.equal(rank_sample(values, 0.5 * share, seed=seed).drawn, index[:half])


def some_seeds(count: int) -> range:
    return range(1000, 1000 + count)


def test_draws_are_in_proportion_to_one_over_the_logarithm_of_rank() -> None:
    """Every ordered draw of three among five, against its probability."""
    diversity = torch.tensor([0.5, 0.1, 0.9, 0.7, 0.3])
    ranks = {2: 1, 3: 2, 0: 3, 4: 4, 1: 5}
    weight = {study: 1 / math.log(rank + 1) for study, rank in ranks.items()}
    assert weight[2] == 1 / math.log(2)
    draws = 6000
    found = Counter(
        tuple(rank_sample(diversity, 0.6, seed=seed).drawn.tolist()) for seed in some_seeds(draws)
    )
    chi_squared = 0.0
    for order in itertools.permutations(weight, 3):
        left, probability = sum(weight.values()), 1.0
        for study in order:
            probability *= weight[study] / left
            left -= weight[study]
        chi_squared += (found[order] - draws * probability) ** 2 / (draws * probability)
    assert chi_squared < 98  # the 99.9th percentile for 59 degrees of freedom; fixed seeds


def test_ties_come_in_every_order() -> None:
    draws = 3000
    found = Counter(
        tuple(rank_sample(torch.ones(3), 1.0, seed=seed).rank.tolist())
        for seed in some_seeds(draws)
    )
    assert len(found) == 6
    assert all(abs(count - draws / 6) < 80 for count in found.values())


def test_order_of_ties_and_draw_are_independent() -> None:
    found = Counter(
        (int(sample.rank[0]), int(sample.drawn[0]) == 0)
        for seed in some_seeds(3000)
        for sample in [rank_sample(torch.ones(2), 0.5, seed=seed)]
    )
    first = found[1, True] / (found[1, True] + found[1, False])
    assert first == pytest.approx(math.log(3) / (math.log(2) + math.log(3)), abs=0.04)


@pytest.mark.parametrize("device", DEVICES)
def test_the_twin_equals_the_reference_bit_for_bit(device) -> None:
    why_not = csrc.why_not("diversity", device)
    assert why_not is None, why_not
    diversity = torch.rand(20_000, generator=torch.Generator().manual_seed(0)).mul(30).round() / 10
    for seed in (0, -1, 2**63 - 1, 2**64 - 1, -(2**63)):
        index, rank = rank_sample(diversity.to(device), 0.2, seed=seed)
        signed = seed - 2**64 if seed >= 2**63 else seed
        wanted = rank_sample_reference(diversity.double(), signed, 4000)
        assert torch.equal(index.cpu(), wanted[0]) and torch.equal(rank.cpu(), wanted[1])


def test_numbers_are_the_same_wherever_they_stand_for_bits() -> None:
    """Printed once: another machine, another library or another version must draw the same."""
    sample = rank_sample(torch.tensor([0.2, 0.4, 0.4, 0.9, 0.0, 0.4, 0.1]), 0.6, seed=20_261_121)
    assert sample.drawn.tolist() == [2, 3, 4, 1]
    assert sample.rank.tolist() == [5, 2, 3, 1, 7, 4, 6]


def test_the_logarithm_is_one() -> None:
    values = torch.cat(
        [
            torch.arange(2, 5000, dtype=torch.float64),
            torch.rand(5000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
            torch.tensor([2.0**-53, 1 - 2.0**-53, 1.0, 1 + 2.0**-52, 0.5**0.5, 2.0**62]),
        ]
    )
    wanted = values.log()
    assert ((plain_log(values) - wanted).abs() <= 4e-16 * wanted.abs()).all()
    assert float(plain_log(torch.tensor([2.0], dtype=torch.float64))) == math.log(2)


@pytest.mark.parametrize("device", DEVICES)
def test_boundary(device) -> None:
    diversity = torch.rand(50, dtype=torch.float64, device=device)
    torch.library.opcheck(torch.ops.rrgkern.rank_sample.default, (diversity, -5, 10))
    torch.library.opcheck(torch.ops.rrgkern.rank_sample.default, (diversity[:0], 0, 0))
    compiled = torch.compile(rank_sample, fullgraph=True, backend="aot_eager")
    for got, wanted in zip(
        compiled(diversity, 0.2, seed=3), rank_sample(diversity, 0.2, seed=3), strict=True
    ):
        assert torch.equal(got, wanted)
    spread = torch.stack([diversity, -diversity], 1)[:, 0]
    assert torch.equal(
        rank_sample(spread, 1.0, seed=1).drawn, rank_sample(diversity, 1.0, seed=1).drawn
    )
    assert rank_sample(diversity[:0], 0.2, seed=0).drawn.shape == (0,)
    assert rank_sample(diversity[:1], 0.01, seed=0).drawn.tolist() == [0]


@pytest.mark.parametrize(
    ("diversity", "share", "seed", "error", "message"),
    [
        (torch.ones(3).long(), 0.2, 0, TypeError, "torch.int64, wanted floating point"),
        (torch.ones(3, 1), 0.2, 0, ValueError, r"\[3, 1\], wanted \[S\]"),
        (torch.ones(3), 0.0, 0, ValueError, "share is 0.0"),
        (torch.ones(3), 0.2, 2**64, ValueError, "seed is 18446744073709551616"),
        (torch.tensor([0.0, math.nan]), 0.2, 0, ValueError, "diversity is nan at study 1"),
    ],
)
def test_refusals(diversity, share, seed, error, message) -> None:
    with pytest.raises(error, match=message):
        rank_sample(diversity, share, seed=seed)


def right(reference: object) -> bool:
    diversity = torch.arange(400, dtype=torch.float64).div(8).floor()
    return all(
        torch.equal(a, b)
        for a, b in zip(
            reference.rank_sample_reference(diversity, 7, 80),
            rank_sample(diversity, 0.2, seed=7),
            strict=True,
        )
    )


def test_the_reference_itself_is_right() -> None:
    assert right(reference_module)


@pytest.mark.gate
def test_planted_faults_die() -> None:
    assert not survivors(reference_module, "rank_sample", right)
