"""csrc's preference loss: instruction sets, numbers of threads, with and without autograd."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rrgkern import preference_loss
from rrgkern.preference_loss import op
from rrgkern.preference_loss.op import preference_loss_fwd
from tests.rrgkern.backends import by_threads, csrc_alone, each_isa
from tests.rrgkern.device import DEVICE
from tests.rrgkern.preference_loss import test_kernel as kernel
from tests.rrgkern.preference_loss.cases import Batch, batch, reference

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="csrc's kernels take CPU tensors")
SHAPES = [*kernel.SHAPES, {"masked": False}]
LENGTHS = [(0,), (0, 0), (1,), (4, 0, 0), (257,), (0, 256, 0)]
isa = each_isa
launch = op.launch


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("length_normalized", [True, False])
def test_fp64_equals_the_reference(isa, shape, length_normalized) -> None:
    kernel.test_fp64_equals_the_reference(launch, shape, length_normalized)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("n_pairs", [0, 1, 129])
def test_odd_lengths(isa, lengths: tuple[int, ...], n_pairs: int) -> None:
    kernel.test_odd_lengths(launch, lengths, n_pairs)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("length_normalized", [True, False])
def test_fp32_is_as_close_to_the_truth_as_eager(isa, shape, length_normalized) -> None:
    kernel.test_fp32_is_as_close_to_the_truth_as_eager(launch, shape, length_normalized)


def test_two_close_policies_keep_their_small_difference(isa) -> None:
    """Differences are taken before they are summed: 1e-7 a token beside log-probs of -6."""
    data = batch(3, lengths=(500, 500), n_pairs=1, masked=False)
    logps = torch.full((1000,), -6.0)
    ref = torch.nextafter(logps, torch.zeros(()))
    close = data.changed(logps=logps.double(), ref=ref.double())
    got = launch(*close.arguments(torch.float32))
    want = reference(*close.arguments())
    torch.testing.assert_close(got[3].double(), want[3], rtol=1e-6, atol=0)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e30])
def test_what_takes_no_part_changes_no_bit(isa, monkeypatch, poison: float) -> None:
    kernel.test_what_takes_no_part_changes_no_bit(launch, poison)


def test_a_nan_that_takes_part_is_not_hidden(isa) -> None:
    kernel.test_a_nan_that_takes_part_is_not_hidden(launch)


@pytest.mark.parametrize("value", [math.inf, -math.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_a_margin_without_end(isa, side: int, value: float) -> None:
    data = batch(7, lengths=(3, 3), n_pairs=1, masked=False)
    data = data.changed(positive=torch.tensor([0]), negative=torch.tensor([1]))
    logps = data.logps.clone()
    logps[3 * side] = value
    data = data.changed(logps=logps, weight=torch.ones(1).double())
    for got, want in zip(launch(*data.arguments()), reference(*data.arguments()), strict=True):
        assert not want.isnan().any()
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)


def test_no_sequences_and_all_masked(isa) -> None:
    kernel.test_no_sequences_and_all_masked(launch)


def test_the_bits_do_not_depend_on_the_number_of_threads(isa, monkeypatch) -> None:
    data = batch(5, lengths=(300, 0, 90_000, 1, 2_000_000, 700), n_pairs=40)
    results = by_threads(monkeypatch, lambda: launch(*data.arguments(torch.float32)), 1, 2, 5)
    for got in results[1:]:
        assert all(map(torch.equal, got, results[0]))


def test_a_group_has_the_same_bits_alone_and_in_a_batch(isa) -> None:
    data = batch(6, lengths=(33, 7, 150, 64, 5, 201, 18, 90), n_pairs=1)
    pairs = torch.tensor([[1, 0], [2, 0], [2, 3], [5, 4], [5, 6], [5, 7]]).T.contiguous()
    weight = torch.rand(6, generator=torch.Generator().manual_seed(0)).double()
    whole = data.changed(positive=pairs[0], negative=pairs[1], weight=weight)
    got = launch(*whole.arguments(torch.float32))
    tokens = slice(int(data.offsets[4]), None)
    alone = whole.changed(
        logps=data.logps[tokens],
        ref=data.ref[tokens],
        mask=data.mask[tokens],
        offsets=data.offsets[4:] - data.offsets[4],
        positive=pairs[0, 3:] - 4,
        negative=pairs[1, 3:] - 4,
        weight=weight[3:],
    )
    _, coef, advantages, _ = launch(*alone.arguments(torch.float32))
    assert torch.equal(coef, got[1][tokens])
    assert torch.equal(advantages, got[2][4:])


@pytest.fixture
def csrc_serves(monkeypatch) -> None:
    csrc_alone(monkeypatch, preference_loss_fwd, launch)


def loss_of(data: Batch, logps: Tensor, **changes: Any) -> Tensor:
    given = {"ref": data.ref.float(), "offsets": data.offsets} | changes
    pairs = given.pop("pairs", data.pairs._replace(weight=data.weight.float()))
    return preference_loss(logps, given["ref"], given["offsets"], pairs, **data.options()).loss


def test_arguments_that_csrc_cannot_take_as_they_are_are_converted(csrc_serves) -> None:
    kernel.test_half_precision_and_strides()
    data = batch(2)
    logps = data.logps.float()
    want = loss_of(data, logps)
    assert torch.equal(loss_of(data, logps, pairs=data.pairs), want)  # weights in fp64
    strided = torch.stack([data.offsets, data.offsets], 1)[:, 0]
    assert torch.equal(loss_of(data, logps, offsets=strided), want)


def test_the_op_refuses_what_leads_astray() -> None:
    data = batch(0)
    for change in ({"positive": data.positive + 7}, {"offsets": data.offsets + 1}):
        with pytest.raises(ValueError, match="lead out of the tensors"):
            launch(*data.changed(**change).arguments())
