"""csrc's group advantages: the reference's bits, any number of threads, and who is called."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rrgkern.advantages import op
from rrgkern.advantages.op import group_advantages_op
from rrgkern.advantages.reference import group_advantages_reference
from tests.rrgkern.advantages import test_advantages as rooms
from tests.rrgkern.backends import by_threads, csrc_alone
from tests.rrgkern.device import DEVICE

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="csrc's kernels take CPU tensors")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
launch = op.launch


def check(*arguments: Any) -> None:
    served, expected = launch(*arguments), group_advantages_reference(*arguments)
    for got, want in zip(served, expected, strict=True):
        # torch's vectorised square root of fp64 is an ulp off; of narrower results nothing shows
        ulps = 4.5e-16 if want.dtype == torch.float64 else 0.0
        torch.testing.assert_close(got, want, rtol=ulps, atol=0.0)


def check_all(std: str, dtype: torch.dtype = torch.float32) -> None:
    for seed in range(5):
        rewards, offsets, valid = rooms.batch(seed, dtype)
        for members in (None, valid):
            check(rewards, offsets, members, std, 1e-6)


@pytest.mark.parametrize("std", rooms.STDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_the_reference(std: str, dtype: torch.dtype) -> None:
    check_all(std, dtype)


def test_every_number_of_16_bits() -> None:
    numbers = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        rewards = numbers.view(dtype)
        rewards = rewards[rewards.isfinite()]
        offsets = torch.arange(0, len(rewards) + 1, 2)
        check(rewards, offsets, None, "none", 0.0)


def test_nan_and_infinite_rewards() -> None:
    offsets = torch.tensor([0, 3, 5, 6])
    for reward in (torch.nan, torch.inf, -torch.inf):
        rewards = torch.tensor([1.0, reward, 2.0, reward, reward, reward])
        got = launch(rewards, offsets, None, "none", 0.0)
        want = group_advantages_reference(rewards, offsets, None, "none", 0.0)
        for left, right in zip(got, want, strict=True):
            torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("std", rooms.STDS)
def test_the_bits_depend_on_neither_threads_nor_batch(std: str, monkeypatch) -> None:
    rewards = torch.rand(600_000, generator=torch.Generator().manual_seed(0))
    offsets = torch.arange(0, 600_001, 10)
    results = by_threads(monkeypatch, lambda: launch(rewards, offsets, None, std, 1e-6), 1, 2, 5)
    assert all(map(torch.equal, results[0], results[1]))
    assert all(map(torch.equal, results[0], results[2]))
    alone = launch(rewards[70:80], torch.tensor([0, 10]), None, std, 1e-6)
    assert torch.equal(alone[0], results[0][0][70:80])


@pytest.fixture
def csrc_serves(monkeypatch) -> None:
    csrc_alone(monkeypatch, group_advantages_op, launch)


def test_arguments_that_csrc_cannot_take_as_they_are_are_converted(csrc_serves) -> None:
    for std in rooms.STDS:
        rooms.test_empty_and_strided_inputs(std)


def test_the_op_refuses_what_leads_astray() -> None:
    rewards = torch.ones(3)
    for offsets in ([0, 4], [0, 2], [0, 5, 3], [1, 3]):
        with pytest.raises(ValueError, match="lead out of the rewards"):
            launch(rewards, torch.tensor(offsets), None, "none", 0.0)
