"""The loss by hand, against the plain loop, and its gradient by finite differences and autograd."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rrgkern.ops import pack
from rrgkern.preference_loss.inputs import PreferenceInputs
from rrgkern.preference_loss.op import preference_loss_fwd
from rrgkern.preference_loss.reference import (
    METRICS,
    pair_losses,
    pair_rewards,
)
from tests.rrgkern.device import DEVICE
from tests.rrgkern.preference_loss.cases import Batch, batch, loop_loss, reference

Serve = Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]]
SERVES = [preference_loss_fwd, reference]
CASES = [
    batch(seed, masked=seed % 2 == 0, length_normalized=seed % 3 != 0).changed(tau=tau)
    for seed, tau in enumerate((0.1, 0.3, 1.0, 2.5, 0.1, 0.3))
]


def test_two_sequences_by_hand() -> None:
    # R = 0.5 * (0.2 + 0.4) / 2 = 0.15 and 0.5 * -0.3 = -0.15: a margin of 0.3.
    data = Batch(
        logps=torch.tensor([-1.0, -2.0, -3.0], dtype=torch.float64, device=DEVICE),
        ref=torch.tensor([-1.2, -2.4, -2.7], dtype=torch.float64, device=DEVICE),
        offsets=torch.tensor([0, 2, 3], device=DEVICE),
        positive=torch.tensor([0], device=DEVICE),
        negative=torch.tensor([1], device=DEVICE),
        weight=torch.tensor([2.0], dtype=torch.float64, device=DEVICE),
        tau=0.5,
    )
    sigma = 1 / (1 + math.exp(0.3))
    for serve in SERVES:
        loss, coef, advantages, metrics = serve(*data.arguments())
        assert float(loss) == pytest.approx(2 * math.log1p(math.exp(-0.3)))
        assert advantages.tolist() == pytest.approx([sigma, -sigma])
        assert coef.tolist() == pytest.approx([-sigma / 2, -sigma / 2, sigma])
        assert metrics.tolist() == pytest.approx([0.3, 1.0, 0.15, -0.15, 1.0])


def check(serve: Serve) -> None:
    """Raise AssertionError unless values, metrics and slopes are those of the plain loop."""
    for data in CASES:
        loss, coef, advantages, metrics = serve(*data.arguments())
        expected, _, by_name = loop_loss(data)
        assert float(loss) == pytest.approx(expected, rel=1e-12)
        assert dict(zip(METRICS, metrics.tolist(), strict=True)) == pytest.approx(by_name)
        slopes = finite_differences(data)
        assert coef.tolist() == pytest.approx(slopes, rel=1e-6, abs=1e-9)
        kept = torch.ones_like(coef, dtype=torch.bool) if data.mask is None else data.mask
        for i, advantage in enumerate(advantages.tolist()):
            tokens = slice(int(data.offsets[i]), int(data.offsets[i + 1]))
            length = max(int(kept[tokens].sum()), 1) if data.length_normalized else 1
            for t in torch.arange(len(coef))[tokens][kept[tokens].cpu()].tolist():
                assert slopes[t] == pytest.approx(-advantage / length, rel=1e-6, abs=1e-9)


def finite_differences(data: Batch) -> list[float]:
    logps, step = data.logps.tolist(), 1e-6
    slopes = []
    for t in range(len(logps)):
        ends = []
        for move in (step, -step):
            moved = list(logps)
            moved[t] += move
            ends.append(loop_loss(data, moved)[0])
        slopes.append((ends[0] - ends[1]) / (2 * step))
    return slopes


@pytest.mark.parametrize("serve", SERVES)
def test_against_the_plain_loop(serve: Serve) -> None:
    check(serve)


def changed_gradient(change: Callable[[Tensor, Tensor, Batch], tuple[Tensor, Tensor]]) -> Serve:
    """The reference with another gradient and other advantages."""

    def mutant(*arguments):
        loss, coef, advantages, metrics = reference(*arguments)
        coef, advantages = change(coef, advantages, Batch(*arguments))
        return loss, coef, advantages, metrics

    return mutant


def changed_input(**fields: Callable[[Batch], object]) -> Serve:
    """The reference on other arguments."""

    def mutant(*arguments):
        data = Batch(*arguments)
        new = {name: change(data) for name, change in fields.items()}
        return reference(*data.changed(**new).arguments())

    return mutant


MUTANTS = {
    "zero gradient": changed_gradient(lambda c, a, _: (c * 0, a)),
    "half scale": changed_gradient(lambda c, a, _: (c / 2, a / 2)),
    "sign flip": changed_gradient(lambda c, a, _: (-c, -a)),
    "positives only": changed_gradient(lambda c, a, _: (c.clamp(max=0), a.clamp(min=0))),
    "negatives only": changed_gradient(lambda c, a, _: (c.clamp(min=0), a.clamp(max=0))),
    "tau missing from the gradient": changed_gradient(lambda c, a, d: (c / d.tau, a / d.tau)),
    "masked tokens get a gradient": changed_gradient(
        lambda c, a, d: (c if d.mask is None else c + ~d.mask, a)
    ),
    "advantages of other sequences": changed_gradient(lambda c, a, _: (c, a.roll(1))),
    "not length-normalised": changed_input(length_normalized=lambda d: False),
    "always length-normalised": changed_input(length_normalized=lambda d: True),
    "length counts masked tokens": changed_input(
        mask=lambda d: None,
        logps=lambda d: d.logps if d.mask is None else torch.where(d.mask, d.logps, 0.0),
        ref=lambda d: d.ref if d.mask is None else torch.where(d.mask, d.ref, 0.0),
    ),
    "mask ignored": changed_input(mask=lambda d: None),
    "tau missing": changed_input(tau=lambda d: 1.0),
    "weight missing": changed_input(weight=lambda d: (d.weight != 0).to(d.weight)),
    "sides swapped": changed_input(positive=lambda d: d.negative, negative=lambda d: d.positive),
    "reference ignored": changed_input(ref=lambda d: d.ref * 0),
    "last pair forgotten": changed_input(
        weight=lambda d: d.weight * (torch.arange(len(d.weight), device=DEVICE) < 11)
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_plain_loop_kills(mutant: Serve) -> None:
    with pytest.raises(AssertionError):
        check(mutant)


@pytest.mark.parametrize("length_normalized", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_gradcheck_and_coef_is_autograd_of_the_forward(
    masked: bool, length_normalized: bool
) -> None:
    data = batch(3, masked=masked, length_normalized=length_normalized)
    inputs = pack(PreferenceInputs, data.arguments())
    logps = data.logps.clone().requires_grad_()

    def forward(logps: Tensor) -> Tensor:
        better, worse = pair_rewards(inputs._replace(logps=logps))
        return pair_losses(better - worse, data.weight).sum()

    assert torch.autograd.gradcheck(forward, logps)
    (expected,) = torch.autograd.grad(forward(logps), logps)
    coef = reference(*data.arguments())[1]
    torch.testing.assert_close(coef, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [30.0, 1e4, 1e8])
@pytest.mark.parametrize("serve", SERVES)
def test_large_margins(serve: Serve, size: float, dtype: torch.dtype) -> None:
    # One token each; the first pair is right by `size`, the second wrong by as much.
    data = batch(lengths=(1, 1), n_pairs=2, masked=False).changed(
        logps=torch.tensor([0.0, -size], dtype=torch.float64, device=DEVICE),
        ref=torch.zeros(2, dtype=torch.float64, device=DEVICE),
        positive=torch.tensor([0, 1], device=DEVICE),
        negative=torch.tensor([1, 0], device=DEVICE),
        weight=torch.ones(2, dtype=torch.float64, device=DEVICE),
        tau=1.0,
    )
    loss, coef, _, _ = serve(*data.arguments(dtype))
    assert float(loss) == pytest.approx(size + 2 * math.log1p(math.exp(-size)), rel=1e-7)
    assert coef.tolist() == pytest.approx([1.0, -1.0])

    data = data.changed(weight=torch.tensor([1.0, 0.0], dtype=torch.float64, device=DEVICE))
    loss, coef, _, metrics = serve(*data.arguments(dtype))
    tail = math.exp(-size)  # relative precision where 1 - σ would be 0
    assert float(loss) == pytest.approx(tail, rel=1e-6)
    assert coef.tolist() == pytest.approx([-tail, tail], rel=1e-6)
    assert metrics.tolist()[:2] == pytest.approx([size, 1.0])
