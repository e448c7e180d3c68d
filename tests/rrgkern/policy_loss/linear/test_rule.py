"""The mode is chosen once, by a rule; one that cannot serve is refused in a line."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from rrgkern import PolicyLoss, linear_policy_loss
from rrgkern.logps.head import NeedsGrad
from rrgkern.policy_loss.linear.api import (
    LEAST_ROWS_WIDE,
    choose_mode,
    least_rows_in_forward,
    operations_per_byte,
)
from tests.rrgkern.policy_loss.linear.cases import keywords, problem

TRAINABLE = NeedsGrad(True, True, False)
FROZEN = NeedsGrad(True, False, False)
NONE = NeedsGrad(False, False, False)
MANY, FEW = LEAST_ROWS_WIDE, LEAST_ROWS_WIDE - 1
PPO = PolicyLoss(beta=0.1)
GSPO = PolicyLoss(ratio_level="sequence")
ENTROPY = PolicyLoss(entropy_coef=0.1)
HALF = {name: torch.ones(n, 16).half() for name, n in (("hidden", 10), ("weight", 200))}
PER_SEQUENCE = PolicyLoss(sampler_level="sequence")


@pytest.mark.parametrize(
    ("spec", "wanted", "rows", "more", "expected"),
    [
        (PPO, FROZEN, FEW, {}, "frozen_head"),
        (GSPO, FROZEN, MANY, {}, "frozen_head"),
        (ENTROPY, FROZEN, MANY, {}, "grad_in_forward"),
        (ENTROPY, FROZEN, FEW, {}, "recompute"),
        (PPO, TRAINABLE, MANY, {}, "grad_in_forward"),
        (PPO, NeedsGrad(True, False, True), MANY, {}, "grad_in_forward"),
        (PPO, TRAINABLE, FEW, {}, "recompute"),
        (GSPO, TRAINABLE, MANY, {}, "recompute"),
        (PolicyLoss(ratio_level="sequence_token"), TRAINABLE, MANY, {}, "recompute"),
        (PolicyLoss(surrogate="vespo"), TRAINABLE, MANY, {}, "recompute"),
        (PER_SEQUENCE, TRAINABLE, MANY, {"sampler": True}, "recompute"),
        (PER_SEQUENCE, TRAINABLE, MANY, {"sampler": False}, "grad_in_forward"),
        (PPO, TRAINABLE, MANY, {"accumulate_weight_grad": True}, "recompute"),
        (PPO, NONE, MANY, {}, "recompute"),
        (PPO, TRAINABLE, MANY, {"half": True}, "recompute"),
        (PPO, FROZEN, MANY, {"half": True}, "frozen_head"),
    ],
)
def test_the_rule(spec, wanted, rows, more, expected):
    more = {"sampler": False} | more
    hidden = torch.empty(rows, 4, dtype=torch.float16 if more.pop("half", False) else None)
    assert choose_mode("auto", spec, hidden, wanted, **more) == expected


# Multiprocessors, kHz, kHz of the memory and its lines; what one measures of TFLOP/s and TB/s.
CARDS = {
    "H100": ((9, 0, 132, 1_980_000, 2_619_000, 5120), 790 / 3.03),
    "A100": ((8, 0, 108, 1_410_000, 1_593_000, 5120), None),
    "L4": ((8, 9, 58, 2_040_000, 6_251_000, 192), None),
    "unheard of": ((99, 0, 132, 1_980_000, 2_619_000, 5120), math.inf),
}


@pytest.mark.parametrize("name", CARDS)
def test_the_rule_in_16_bits_weighs_a_product_against_bytes_of_this_card(monkeypatch, name):
    numbers, measured = CARDS[name]
    fields = ("major", "minor", "multi_processor_count", "clock_rate", "memory_clock_rate")
    card = SimpleNamespace(**dict(zip((*fields, "memory_bus_width"), numbers, strict=True)))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    balance = operations_per_byte(torch.device("cuda", 0))
    assert measured is None or balance == pytest.approx(measured, rel=0.02)
    for width in (896, 1536, 2048, 3584):
        with FakeTensorMode():
            hidden = torch.empty(1, width, dtype=torch.bfloat16, device="cuda:0")
        rows = least_rows_in_forward(hidden)
        if width <= 6 * balance:
            assert rows == math.inf
            continue
        # There, what a product takes is what is moved instead.
        assert 2 * rows * width / balance == pytest.approx(12 * rows + 6 * width)
        for n, mode in ((math.ceil(rows), "grad_in_forward"), (math.ceil(rows) - 1, "recompute")):
            many = hidden.expand(n, width)
            assert choose_mode("auto", PPO, many, TRAINABLE, sampler=False) == mode


def test_nothing_wanted_forces_nothing():
    hidden = torch.empty(4, 4)
    assert choose_mode("frozen_head", PPO, hidden, NONE, sampler=False) == "recompute"


@pytest.mark.parametrize(
    ("mode", "changes", "trainable", "words"),
    [
        ("fast", {}, True, "mode is 'fast'; choose one of 'auto', 'frozen_head'"),
        ("frozen_head", {}, True, r"weight requires a gradient.*weight.requires_grad_\(False\)"),
        ("frozen_head", {"spec": ENTROPY}, False, "entropy_coef 0.1.*choose that"),
        ("grad_in_forward", {"spec": GSPO}, True, "ratio_level 'sequence'.*'recompute'"),
        ("grad_in_forward", HALF, True, "hidden is torch.float16.*'recompute'"),
        ("grad_in_forward", {"accumulate_weight_grad": True}, True, "only 'recompute'"),
    ],
)
def test_a_mode_that_cannot_serve_is_refused(mode, changes, trainable, words):
    given = problem(given="old").to(torch.float32)
    called = keywords(given, mode=mode, **changes)
    called["hidden"].requires_grad_()
    called["weight"].requires_grad_(trainable)
    with pytest.raises(ValueError, match=words):
        linear_policy_loss(**called)
