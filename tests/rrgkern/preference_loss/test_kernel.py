"""Whatever serves the op (here the Triton passes) against the reference; the op in PyTorch."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rrgkern import PreferencePairs, preference_advantages, preference_loss
from rrgkern.preference_loss.op import preference_loss_fwd
from rrgkern.preference_loss.reference import METRICS
from tests.products import more
from tests.rrgkern.preference_loss.cases import Batch, batch, reference
from tests.tolerance import assert_close_to_truth

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")

SERVES = [preference_loss_fwd, reference]
EPS = torch.finfo(torch.float32).eps
SHAPES = [
    {},
    {"lengths": (300, 0, 1, 511, 40, 700, 3, 256), "n_pairs": 300},
    {"lengths": (5, 5), "n_pairs": 1},
]


@pytest.mark.parametrize("serve", [preference_loss_fwd])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("length_normalized", [True, False])
def test_fp64_equals_the_reference(
    serve, shape: dict[str, object], length_normalized: bool
) -> None:
    data = batch(1, length_normalized=length_normalized, **shape)
    served = serve(*data.arguments())
    expected = reference(*data.arguments())
    for got, want in zip(served, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)


def eager(data: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, gradient and metrics as one writes them in fp32, by autograd."""
    logps = data.logps.float().requires_grad_()
    keep = torch.ones_like(logps) if data.mask is None else data.mask.float()
    lengths = data.offsets.diff()
    gains = torch.segment_reduce((logps - data.ref.float()) * keep, "sum", lengths=lengths)
    if data.length_normalized:
        gains = gains / torch.segment_reduce(keep, "sum", lengths=lengths).clamp(min=1)
    rewards = data.tau * gains
    better, worse = rewards[data.positive], rewards[data.negative]
    loss = -(data.weight.float() * F.logsigmoid(better - worse)).sum()
    (gradient,) = torch.autograd.grad(loss, logps)
    live = data.weight != 0

    def mean(values: Tensor) -> Tensor:
        return values.detach()[live].float().mean()

    metrics = [mean(better - worse), mean(better > worse), mean(better), mean(worse)]
    return loss.detach(), gradient, torch.stack([*metrics, live.sum().float()])


@pytest.mark.parametrize("serve", SERVES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("length_normalized", [True, False])
def test_fp32_is_as_close_to_the_truth_as_eager(serve, shape, length_normalized) -> None:
    data = batch(2, length_normalized=length_normalized, **shape)
    loss, coef, advantages, metrics = serve(*data.arguments(torch.float32))
    truth = reference(*data.arguments())
    eager_loss, eager_coef, eager_metrics = eager(data)
    assert_close_to_truth(loss, eager_loss, truth[0])
    # A sequence on both sides gets a difference of pulls: eager may be exact there by luck.
    assert_close_to_truth(coef, eager_coef, truth[1], tiny=EPS * truth[1].abs().max())
    assert_close_to_truth(metrics, eager_metrics, truth[3], tiny=EPS * (1 + truth[3].abs()))
    torch.testing.assert_close(advantages.double(), truth[2], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("serve", SERVES)
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e30])
def test_what_takes_no_part_changes_no_bit(serve, poison: float) -> None:
    data = batch(4)
    clean = serve(*data.arguments(torch.float32))
    assert data.weight.eq(0).any()
    absent = len(data.offsets) - 2  # the last sequence is in no pair
    assert not (data.positive.eq(absent) | data.negative.eq(absent)).any()

    poisoned = ~data.mask
    poisoned[data.offsets[absent] :] = True
    logps, ref = (torch.where(poisoned, poison, values) for values in (data.logps, data.ref))
    # Pairs without weight may name a poisoned sequence.
    out = data.weight == 0
    dirty = serve(
        *data.changed(
            logps=logps, ref=ref, positive=torch.where(out, absent, data.positive)
        ).arguments(torch.float32)
    )
    for before, after in zip(clean, dirty, strict=True):
        assert before.isfinite().all()
        assert torch.equal(before, after)
    assert dirty[1][poisoned].eq(0).all()


@pytest.mark.parametrize("serve", SERVES)
def test_a_nan_that_takes_part_is_not_hidden(serve) -> None:
    data = batch(4, masked=False)
    logps = data.logps.clone()
    logps[data.offsets[data.positive[0]]] = math.nan
    loss, _, _, metrics = serve(*data.changed(logps=logps).arguments())
    assert loss.isnan() and metrics[0].isnan()


@pytest.mark.parametrize("serve", [preference_loss_fwd])
@pytest.mark.parametrize("lengths", [(0,), (0, 0), (1,), (4, 0, 0), (257,), (0, 256, 0)])
@pytest.mark.parametrize("n_pairs", [0, 1, 129])
def test_odd_lengths(serve, lengths: tuple[int, ...], n_pairs: int) -> None:
    data = batch(4, lengths=lengths, n_pairs=n_pairs)
    served = serve(*data.arguments())
    expected = reference(*data.arguments())
    for got, want in zip(served, expected, strict=True):
        assert got.shape == want.shape
        torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("serve", SERVES)
def test_no_sequences_and_all_masked(serve) -> None:
    data = batch(lengths=(), n_pairs=0)
    loss, coef, advantages, metrics = serve(*data.arguments())
    assert loss == 0 and metrics.eq(0).all() and not coef.numel() and not advantages.numel()
    data = batch(3)
    masked = data.changed(mask=torch.zeros_like(data.mask))
    loss, coef, _, metrics = serve(*masked.arguments())
    # Every margin is 0: log 2 a pair, and nobody to move.
    torch.testing.assert_close(loss, data.weight.sum() * math.log(2))
    assert coef.eq(0).all() and metrics[:4].eq(0).all()


def call(data: Batch, logps: Tensor) -> tuple[Tensor, Tensor]:
    out = preference_loss(logps, data.ref.to(logps), data.offsets, data.pairs, **data.options())
    (gradient,) = torch.autograd.grad(3 * out.loss, logps)
    return out.loss, gradient


@pytest.mark.parametrize("length_normalized", [True, False])
def test_public_function(length_normalized: bool) -> None:
    data = batch(6, length_normalized=length_normalized)
    logps = data.logps.clone().requires_grad_()
    loss, gradient = call(data, logps)
    want_loss, coef, want_advantages, want_metrics = reference(*data.arguments())
    torch.testing.assert_close(loss.detach(), want_loss)
    torch.testing.assert_close(gradient, 3 * coef)
    out = preference_loss(logps, data.ref, data.offsets, data.pairs, **data.options())
    assert list(out.metrics) == list(METRICS)
    torch.testing.assert_close(torch.stack(list(out.metrics.values())), want_metrics)
    assert not any(value.requires_grad for value in out.metrics.values())
    advantages = preference_advantages(logps, data.ref, data.offsets, data.pairs, **data.options())
    torch.testing.assert_close(advantages, want_advantages)
    assert not advantages.requires_grad


def test_half_precision_and_strides() -> None:
    data = batch(7, masked=False)
    half = data.logps.bfloat16()
    loss, gradient = call(data, half.clone().requires_grad_())
    assert loss.dtype == torch.float32 and gradient.dtype == torch.bfloat16
    exact = data.changed(logps=half.double(), ref=data.ref.bfloat16().double())
    torch.testing.assert_close(loss.detach().double(), loss_of(exact), rtol=1e-6, atol=0)

    wide = torch.stack([data.logps, data.ref], dim=1)
    strided = preference_loss(
        wide[:, 0],
        wide[:, 1],
        torch.stack([data.offsets, data.offsets], 1)[:, 0],
        PreferencePairs(*(torch.stack([t, t], 1)[:, 1] for t in data.pairs)),
        **data.options(),
    )
    assert torch.equal(strided.loss, loss_of(data))


def loss_of(data: Batch) -> Tensor:
    return preference_loss_fwd(*data.arguments())[0]


@pytest.mark.parametrize("masked", [True, *more(False)])
def test_opcheck(masked: bool) -> None:
    data = batch(1, masked=masked)
    logps, *others = data.arguments(torch.float32)
    torch.library.opcheck(preference_loss_fwd, (logps.clone().requires_grad_(), *others))


@pytest.mark.gpu
def test_nothing_waits_for_the_device() -> None:
    data = batch(9)
    logps = data.logps.clone().requires_grad_()
    call(data, logps)  # the first call compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        call(data, logps)
    finally:
        torch.cuda.set_sync_debug_mode("default")
