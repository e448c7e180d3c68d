"""Group advantages against hand-made tables, a plain loop, and the kernel against the reference."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest
import torch
from torch import Tensor

from rrgkern import group_advantages, zero_variance_share
from rrgkern.advantages.op import group_advantages_op
from rrgkern.advantages.reference import group_advantages_reference
from tests.products import more
from tests.rrgkern.device import DEVICE

# NumPy, under Triton's interpreter, warns of the 0 / 0 that `where` then leaves aside.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
STDS = ("none", "population", "sample")
LENGTHS = (3, 0, 1, 7, 2, 5, 19, 4)


def tensor(values: list[float] | float) -> Tensor:
    return torch.tensor(values, device=DEVICE)


def batch(seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards, offsets and membership with empty, single, constant and fully dropped groups."""
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.tensor((0, *LENGTHS)).cumsum(0)
    rewards = torch.randn(int(offsets[-1]), generator=generator, dtype=torch.float64).to(dtype)
    valid = torch.rand(len(rewards), generator=generator) > 0.3
    rewards[offsets[4] : offsets[5]] = 0.1
    valid[offsets[7] : offsets[8]] = False
    return rewards.to(DEVICE), offsets.to(DEVICE), valid.to(DEVICE)


def plain_loop(
    rewards: list[float], offsets: list[int], valid: list[bool], std: str, eps: float
) -> list[float]:
    """The definition, one group at a time, with the standard library's own deviations."""
    result = [0.0] * len(rewards)
    for start, end in itertools.pairwise(offsets):
        members = [i for i in range(start, end) if valid[i]]
        values = [rewards[i] for i in members]
        if len(set(values)) < 2:
            continue
        mean = statistics.fmean(values)
        divisor = 1.0
        if std == "population":
            divisor = math.sqrt(statistics.pvariance(values) + eps)
        if std == "sample":
            divisor = statistics.stdev(values) + eps
        for i in members:
            result[i] = (rewards[i] - mean) / divisor
    return result


def test_means_by_hand() -> None:
    offsets = tensor([0, 3, 5])
    rewards = tensor([1.0, 2.0, 6.0, 0.5, 0.25])
    got = group_advantages(rewards, offsets)
    assert got.tolist() == [-2.0, -1.0, 3.0, 0.125, -0.125]
    assert got.dtype == torch.float32


def test_deviations_by_hand() -> None:
    offsets = tensor([0, 2])
    rewards = tensor([0.0, 2.0])
    population = group_advantages(rewards, offsets, std="population", eps=3.0)
    assert population.tolist() == [-0.5, 0.5]  # the root of 1 + 3: eps stands inside
    sample = group_advantages(rewards, offsets, std="sample", eps=1.0)
    torch.testing.assert_close(sample, tensor([-1.0, 1.0]) / (math.sqrt(2.0) + 1.0))


@pytest.mark.parametrize("std", STDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_agrees_with_the_plain_loop(std: str, dtype: torch.dtype) -> None:
    rewards, offsets, valid = batch(dtype=dtype)
    expected = plain_loop(
        rewards.double().tolist(), offsets.tolist(), valid.tolist(), std, eps=1e-5
    )
    got = group_advantages(rewards, offsets, valid=valid, std=std, eps=1e-5)
    assert got.dtype == torch.promote_types(dtype, torch.float32)
    want = torch.tensor(expected, dtype=got.dtype, device=got.device)
    torch.testing.assert_close(got, want, rtol=1e-14 if dtype.itemsize == 8 else 2e-7, atol=1e-12)


@pytest.mark.parametrize("std", STDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernel_equals_reference_bit_for_bit(std: str, dtype: torch.dtype) -> None:
    rewards, offsets, valid = batch(seed=1, dtype=dtype)
    for members in (None, valid):
        served = group_advantages_op(rewards, offsets, members, std, 1e-6)
        expected = group_advantages_reference(rewards, offsets, members, std, 1e-6)
        for got, want in zip(served, expected, strict=True):
            assert got.dtype == want.dtype
            assert torch.equal(got, want)


@pytest.mark.parametrize("std", STDS)
def test_equal_rewards_are_exactly_zero(std: str) -> None:
    # The mean of three times 0.1 is not 0.1 in floating point: an answer by subtraction fails.
    for value in (0.1, 1e-30, 3e20, 0.7):
        rewards = tensor([value] * 3)
        got = group_advantages(rewards, tensor([0, 3]), std=std, eps=0.0)
        assert got.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("std", STDS)
def test_fewer_than_two_members_are_exactly_zero(std: str) -> None:
    rewards = tensor([5.0, 1.0, 2.0])
    offsets = tensor([0, 1, 3])
    valid = tensor([True, False, True])
    assert group_advantages(rewards, offsets, valid=valid, std=std).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("std", STDS)
def test_an_invalid_member_is_left_out_and_not_read(std: str) -> None:
    rewards, offsets, valid = batch()
    clean = group_advantages(rewards, offsets, valid=valid, std=std)
    assert clean[~valid].eq(0).all()
    for poison in (torch.nan, torch.inf, 1e30):
        poisoned = rewards.masked_fill(~valid, poison)
        assert torch.equal(group_advantages(poisoned, offsets, valid=valid, std=std), clean)


def test_a_tiny_difference_counts() -> None:
    rewards = tensor([1.0, 1.0 + 2**-23])
    got = group_advantages(rewards, tensor([0, 2]), std="population", eps=0.0)
    assert got.tolist() == [-1.0, 1.0]


def test_nan_reward_of_a_member_never_becomes_zero() -> None:
    rewards = tensor([torch.nan, 1.0, 2.0])
    offsets = tensor([0, 3])
    for serve in (group_advantages_op, group_advantages_reference):
        assert serve(rewards, offsets, None, "none", 0.0)[0].isnan().all()


def test_zero_variance_share() -> None:
    rewards = tensor([1.0, 1.0, 0.0, 1.0, 4.0, 9.0, 2.0])
    offsets = tensor([0, 2, 4, 5, 5, 7])
    valid = tensor([True, True, True, True, True, False, False])
    # equal, different, single, empty, no member: two of the three that count
    share = zero_variance_share(rewards, offsets, valid=valid)
    torch.testing.assert_close(share, tensor(2 / 3))
    assert zero_variance_share(rewards[:0], tensor([0, 0])).isnan()


@pytest.mark.parametrize("std", STDS)
def test_empty_and_strided_inputs(std: str) -> None:
    empty = group_advantages(tensor([0.0])[:0], tensor([0]), std=std)
    assert empty.shape == (0,)
    rewards, offsets, valid = batch()
    wide = torch.stack([rewards, rewards + 1], dim=1)
    strided = group_advantages(
        wide[:, 0], torch.stack([offsets, offsets], 1)[:, 0], valid=valid, std=std
    )
    assert torch.equal(strided, group_advantages(rewards, offsets, valid=valid, std=std))


@pytest.mark.parametrize("std", STDS)
def test_a_table_of_groups_needs_no_offsets(std: str) -> None:
    rewards, _, valid = batch()
    for groups, size in ((5, 8), (40, 1), (1, 40), (0, 4), (3, 0)):
        count = groups * size
        offsets = torch.arange(groups + 1, device=DEVICE) * size
        for members in (None, valid[:count]):
            table = rewards[:count].reshape(groups, size)
            shaped = None if members is None else members.reshape(groups, size)
            got = group_advantages(table, valid=shaped, std=std)
            want = group_advantages(rewards[:count], offsets, valid=members, std=std)
            assert got.shape == table.shape and torch.equal(got.flatten(), want)
            shares = (
                zero_variance_share(table, valid=shaped),
                zero_variance_share(rewards[:count], offsets, valid=members),
            )
            torch.testing.assert_close(*shares, rtol=0, atol=0, equal_nan=True)
    turned = rewards[:40].reshape(5, 8).T
    assert torch.equal(group_advantages(turned), group_advantages(turned.contiguous()))


@pytest.mark.parametrize("std", [STDS[0], *more(*STDS[1:])])
def test_opcheck(std: str) -> None:
    rewards, offsets, valid = batch()
    for members in (None, valid):
        torch.library.opcheck(group_advantages_op, (rewards, offsets, members, std, 1e-6))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rewards": torch.zeros(3, 2)}, ValueError, r"rewards has shape \(3, 2\); wanted \[S\]"),
        ({"group_offsets": None}, ValueError, r"wanted \[B, G\], or \[S\] with group_offsets"),
        (
            {"rewards": torch.zeros(1, 3), "group_offsets": None, "valid": torch.ones(3).bool()},
            ValueError,
            r"valid has shape \(3,\) and rewards \(1, 3\)",
        ),
        ({"rewards": torch.zeros(3, dtype=torch.int64)}, TypeError, "rewards is torch.int64"),
        ({"group_offsets": torch.tensor([0, 2])}, ValueError, "from 0 to 2; .* sequences, 3"),
        ({"group_offsets": torch.tensor([0, 2, 1, 3])}, ValueError, "goes down after position 1"),
        ({"valid": torch.ones(3)}, TypeError, "valid is torch.float32; wanted torch.bool"),
        ({"rewards": torch.tensor([0, torch.nan, 1])}, ValueError, "reward of sequence 1 is nan"),
        ({"std": "robust"}, ValueError, "std is 'robust'; choose one of 'none'"),
        ({"eps": -1.0}, ValueError, "eps is -1.0"),
        ({"group_offsets": torch.tensor([0, 3]).to("meta")}, ValueError, "is on meta"),
    ],
)
def test_bad_input_is_one_clear_line(
    change: dict[str, object], error: type[Exception], message: str
) -> None:
    arguments = {"rewards": torch.zeros(3), "group_offsets": torch.tensor([0, 3])} | change
    with pytest.raises(error, match=message) as caught:
        group_advantages(arguments.pop("rewards"), arguments.pop("group_offsets"), **arguments)
    assert "\n" not in str(caught.value)
