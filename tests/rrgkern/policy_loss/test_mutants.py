"""Wrong losses that the yardstick must refuse, each planted in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rrgkern import PolicyLoss
from rrgkern.policy_loss.op import policy_loss_fwd
from tests.rrgkern.policy_loss.cases import Batch, batch
from tests.rrgkern.policy_loss.yardstick import check_fp32

Served = tuple[Tensor, ...]
SPEC = PolicyLoss(
    ratio_level="sequence",
    beta=0.3,
    kl_ratio_weight=True,
    entropy_coef=0.1,
    sampler_min=0.6,
    sampler_max=1.5,
)


def serve(data: Batch, spec: PolicyLoss = SPEC) -> Served:
    return policy_loss_fwd(*data.to(torch.float32).arguments(spec))


def scaled(served: Served, loss: float, coef: float, entropy: float) -> Served:
    return served[0] * loss, served[1] * coef, served[2] * entropy, served[3]


def with_gradient_of(other: Callable[[Batch], Served]) -> Callable[[Batch], Served]:
    """Right loss and metrics, the gradient of a wrong loss."""

    def mutant(data: Batch) -> Served:
        right = serve(data)
        return right[0], other(data)[1], right[2], right[3]

    return mutant


MUTANTS: dict[str, Callable[[Batch], Served]] = {
    "zero gradient": lambda d: scaled(serve(d), 1, 0, 1),
    "half gradient": lambda d: scaled(serve(d), 1, 0.5, 1),
    "flipped gradient": lambda d: scaled(serve(d), 1, -1, 1),
    "half loss": lambda d: scaled(serve(d), 0.5, 1, 1),
    "zero entropy gradient": lambda d: scaled(serve(d), 1, 1, 0),
    "flipped entropy gradient": lambda d: scaled(serve(d), 1, 1, -1),
    "no token weight": lambda d: serve(d.changed(token_weight=None)),
    "no scale": lambda d: serve(d.changed(scale=torch.ones_like(d.scale))),
    "on-policy flag ignored": lambda d: serve(d.changed(on_policy=None)),
    "mask ignored": lambda d: serve(d.changed(mask=None)),
    "old ignored": lambda d: serve(d.changed(old=None)),
    "sampler ignored": lambda d: serve(d.changed(sampler=None)),
    "truncated instead of masked": lambda d: serve(d, replace(SPEC, sampler_mode="mask")),
    "correction of the sequence": lambda d: serve(d, replace(SPEC, sampler_level="sequence")),
    "no KL": lambda d: serve(d, replace(SPEC, beta=0.0)),
    "another KL": lambda d: serve(d, replace(SPEC, kl="k2")),
    "dual clip": lambda d: serve(d, replace(SPEC, dual_clip=1.25)),
    "another clip": lambda d: serve(d, replace(SPEC, eps_high=0.25)),
    "gradient of the token level": with_gradient_of(
        lambda d: serve(d, replace(SPEC, ratio_level="sequence_token"))
    ),
    "KL weight not differentiated": with_gradient_of(
        lambda d: serve(d, replace(SPEC, kl_ratio_weight=False))
    ),
    "one gradient for all tokens": lambda d: (
        (s := serve(d))[0],
        s[1].mean().expand_as(s[1]),
        *s[2:],
    ),
}


# Short sequences, so that ratios of a sequence too lie on both sides of every clip.
DATA = batch(1, lengths=(1, 2, 3, 1) * 5)


def test_the_right_one_passes() -> None:
    check_fp32(SPEC, DATA, serve(DATA))


@pytest.mark.gate
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_mutant_dies(mutant: Callable[[Batch], Served]) -> None:
    with pytest.raises(AssertionError):
        check_fp32(SPEC, DATA, mutant(DATA))
