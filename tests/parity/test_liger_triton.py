"""Liger 0.8.5's Triton GRPO loss, from logits, against the same from here."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.parity.liger_logits import AGGREGATION, FP32, Logits, by_both, spec_of
from tests.parity.padded import Result, assert_same, ours
from tests.parity.trl_grpo import sampler_ratio

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")

KLS = ((0.0, False), (0.3, False), (0.3, True))
# (loss type, level, (beta, KL times ratio), dual clip): every branch of both kernels, then the
# reductions that differ behind the same kernel.
CASES = [
    *(("grpo", *case) for case in itertools.product(("token", "sequence"), KLS, (None, 1.4))),
    *((loss, "token", kl, None) for loss in AGGREGATION for kl in KLS),
    *(
        (loss, level, (0.3, False), None)
        for loss in ("bnpo", "dr_grpo", "dapo")
        for level in ("token", "sequence")
    ),
]
# (loss type, level, level of the sampler's correction)
SAMPLED = [
    ("grpo", "token", "token"),
    ("grpo", "sequence", "sequence"),
    ("cispo", "token", "sequence"),
    ("sapo", "token", "token"),
    ("vespo", "token", "token"),
]


def names(case: tuple[Any, ...]) -> str:
    loss, level, (beta, corrected), delta = case
    kl = ("k3r" if corrected else "k3") if beta else "no kl"
    return f"{loss}-{level}-{kl}-{'dual' if delta else 'single'} clip"


@pytest.mark.parametrize("case", CASES, ids=names)
def test_loss_and_gradient_by_the_logits(case: tuple[Any, ...]) -> None:
    mine, theirs = by_both(Logits.draw(CASES.index(case)), *case)
    assert theirs.gradient.any()
    assert_same(mine, theirs, **FP32)


@pytest.mark.parametrize(("loss", "level", "sampler_level"), SAMPLED)
def test_correction_for_the_sampler(loss: str, level: str, sampler_level: str) -> None:
    given, bounds = Logits.draw(40), (0.6, 1.6)
    spec = spec_of(
        loss, level, sampler_level=sampler_level, sampler_min=bounds[0], sampler_max=bounds[1]
    )
    mine = ours(given.data, spec, AGGREGATION.get(loss, loss), packed=False, sampler=True)
    theirs = given.by_liger(
        loss,
        beta=0.0,
        importance_sampling_level=level,
        vllm_is_ratio=sampler_ratio(given.data, sampler_level, "truncate", bounds),
    )
    assert_same(Result(mine.loss, given.gradient(mine.gradient), {}), theirs, **FP32)
    uncorrected = ours(given.data, spec, AGGREGATION.get(loss, loss), packed=False)
    assert float(uncorrected.loss) != pytest.approx(float(mine.loss), rel=1e-3)


def test_metrics() -> None:
    mine, theirs = by_both(Logits.draw(3), "bnpo", "token", (0.3, False))
    kl, clipped = (value.item() for value in theirs.metrics.values())
    assert mine.metrics["kl"] == pytest.approx(kl, rel=1e-4)
    assert mine.metrics["clip_low"] + mine.metrics["clip_high"] == pytest.approx(clipped)
