"""Diagnostic diversity against its definition, and equal bits for equal diversity."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from rrgkern import csrc, diagnostic_diversity, reward_spread
from rrgkern.diversity import reference as reference_module
from rrgkern.diversity.api import deviations
from tests.mutants import survivors
from tests.rrgkern.many_cases import Cases, Choices, for_all

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def deviation(values: tuple[int, ...]) -> float:
    """The population's; `statistics.pstdev` works in fractions, a hundred times as long."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


def by_definition(positive: torch.Tensor) -> list[float]:
    return [
        math.fsum(deviation(column) for column in zip(*study, strict=True))
        for study in positive.long().tolist()
    ]


def tables(samples: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    factor, radical, roots = deviations(samples)
    return torch.tensor(factor), torch.tensor(radical), torch.tensor(roots, dtype=torch.float64)


def some_labels(choices: Choices) -> tuple[tuple[bool, ...], ...]:
    """Ten samples of fourteen classes, each class with a rate of its own."""
    rates = [choices.below(256) for _ in range(14)]
    return tuple(tuple(choices.below(256) < rate for rate in rates) for _ in range(10))


@for_all(Cases(some_labels, 154))
def test_diversity_follows_the_definition_and_forgets_the_order(cases: list) -> None:
    positive = torch.tensor(cases)
    diversity = diagnostic_diversity(positive)
    assert diversity.dtype == torch.float64
    assert diversity.tolist() == pytest.approx(by_definition(positive), rel=1e-14, abs=1e-14)
    generator = torch.Generator().manual_seed(0)
    classes, samples = (torch.randperm(n, generator=generator) for n in (14, 10))
    assert torch.equal(diagnostic_diversity(positive[:, :, classes]), diversity)
    assert torch.equal(diagnostic_diversity(positive[:, samples]), diversity)
    assert torch.equal(diagnostic_diversity(~positive), diversity)


@pytest.mark.skipif(csrc.why_not("diversity", "cpu") is not None, reason="not compiled")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("samples", "classes"), [(1, 1), (2, 14), (10, 14), (7, 3), (33, 5)])
def test_the_twin_equals_the_reference_bit_for_bit(device, samples, classes) -> None:
    generator = torch.Generator().manual_seed(samples)
    rates = torch.rand(500, 1, classes, generator=generator)
    positive = torch.rand(500, samples, classes, generator=generator) < rates
    wanted = reference_module.diagnostic_diversity_reference(
        positive.view(torch.uint8), *tables(samples)
    )
    assert torch.equal(diagnostic_diversity(positive.to(device)).cpu(), wanted)


def study(*counts: int) -> torch.Tensor:
    """One study of ten samples with these numbers of positives."""
    return (torch.arange(10)[:, None] < torch.tensor(counts))[None]


def test_equal_diversity_is_equal_to_the_bit() -> None:
    # 3 + sqrt 21 + 5 = 4 + sqrt 21 + 4 in tenths, though no order of additions promises it.
    same = [(1, 3, 5), (5, 1, 3), (9, 7, 5), (2, 2, 3), (3, 8, 2), (8, 7, 8)]
    values = {float(diagnostic_diversity(study(*counts))) for counts in same}
    assert len(values) == 1
    assert values.pop() == pytest.approx((8 + math.sqrt(21)) / 10)


def test_the_extremes() -> None:
    assert diagnostic_diversity(study(*[5] * 14)).tolist() == [7.0]
    assert diagnostic_diversity(study(*[0, 10] * 7)).tolist() == [0.0]
    assert diagnostic_diversity(study(1)).tolist() == [0.3]
    assert diagnostic_diversity(torch.ones(3, 1, 14, dtype=torch.bool)).tolist() == [0.0] * 3
    assert diagnostic_diversity(torch.ones(0, 10, 14, dtype=torch.bool)).shape == (0,)
    assert diagnostic_diversity(torch.ones(2, 10, 0, dtype=torch.bool)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("samples", [1, 2, 10, 16, 100])
def test_the_tables_of_deviations(samples: int) -> None:
    factor, radical, roots = deviations(samples)
    for n, (a, b) in enumerate(zip(factor, radical, strict=True)):
        assert a * a * round(roots[b] ** 2) == n * (samples - n)
    squares = [round(root * root) for root in roots]
    assert len(set(squares)) == len(squares)
    for b, d in itertools.product(squares, range(2, 60)):
        assert b % (d * d) != 0


@pytest.mark.parametrize("device", DEVICES)
def test_boundary(device) -> None:
    positive = torch.rand(6, 10, 14, generator=torch.Generator().manual_seed(0)).lt(0.3).to(device)
    arguments = (positive.view(torch.uint8), *(table.to(device) for table in tables(10)))
    torch.library.opcheck(torch.ops.rrgkern.diagnostic_diversity.default, arguments)
    compiled = torch.compile(diagnostic_diversity, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(positive), diagnostic_diversity(positive))
    spread = positive.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert not spread.is_contiguous()
    assert torch.equal(diagnostic_diversity(spread), diagnostic_diversity(positive))


@pytest.mark.parametrize(
    ("positive", "error", "message"),
    [
        (torch.ones(2, 10, 14).int(), TypeError, r"torch.int32, wanted torch.bool: from class ids"),
        (torch.ones(2, 14).bool(), ValueError, r"is \[2, 14\], wanted \[S, K, C\]"),
        (torch.ones(2, 0, 14).bool(), ValueError, "at least one sample"),
    ],
)
def test_refusals(positive, error, message) -> None:
    with pytest.raises(error, match=message):
        diagnostic_diversity(positive)


LABELS = torch.rand(60, 10, 14, generator=torch.Generator().manual_seed(3)) < torch.rand(
    60, 1, 14, generator=torch.Generator().manual_seed(4)
)


def right(reference: object) -> bool:
    found = reference.diagnostic_diversity_reference(LABELS.view(torch.uint8), *tables(10))
    return found.tolist() == pytest.approx(by_definition(LABELS), rel=1e-14)


def test_planted_faults_die() -> None:
    assert not survivors(reference_module, "diversity", right)


# Table 7's three numbers against plain loops.
REWARDS = [0.0, 0.25, 0.5, 0.1, 1.0]


def some_groups(choices: Choices) -> tuple[tuple[tuple[float, bool], ...], ...]:
    """Groups of rewards, each valid or not."""
    return tuple(
        tuple((choices.of(REWARDS), choices.below(5) > 0) for _ in range(choices.below(7)))
        for _ in range(1 + choices.below(8))
    )


@for_all(Cases(some_groups, 100))
def test_the_three_numbers(cases: list) -> None:
    for groups in cases:
        flat = [member for group in groups for member in group]
        rewards = torch.tensor([reward if valid else math.nan for reward, valid in flat])
        valid = torch.tensor([valid for _, valid in flat], dtype=torch.bool)
        offsets = torch.tensor([0, *map(len, groups)]).cumsum(0)
        found = [float(number) for number in reward_spread(rewards, offsets, valid=valid)]
        lists = [[reward for reward, ok in group if ok] for group in groups]
        lists = [rewards for rewards in lists if rewards]
        if not lists:
            assert all(map(math.isnan, found))
            continue
        wanted = [
            sum(len(set(rewards)) == 1 for rewards in lists) / len(lists),
            sum(len(set(rewards)) for rewards in lists) / len(lists),
            sum(map(deviation, lists)) / len(lists),
        ]
        assert found == pytest.approx(wanted, abs=1e-7)


def test_without_a_mask_and_in_fp64() -> None:
    spread = reward_spread(torch.tensor([0.0, 0.0, 1.0, 0.5]), torch.tensor([0, 2, 4]))
    assert spread.zero_variance.dtype == spread.mean_std.dtype == torch.float64
    assert [float(number) for number in spread] == [0.5, 1.5, 0.125]


def test_a_reward_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="the reward of sequence 1 is nan"):
        reward_spread(torch.tensor([0.0, math.nan]), torch.tensor([0, 2]))
