"""The mode is chosen once, by a rule; one that cannot serve is refused in a line."""

from __future__ import annotations

import pytest
import torch

from rrgkern import PolicyLoss, linear_policy_loss
from rrgkern.logps.head import NeedsGrad
from rrgkern.policy_loss.linear.api import (
    LEAST_ROWS_WIDE,
    choose_mode,
    least_rows_in_forward,
)
from tests.rrgkern.device import DEVICE
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


@pytest.mark.parametrize(
    ("rows", "width", "expected"),
    [
        (1194, 2048, "grad_in_forward"),
        (1193, 2048, "recompute"),
        (796, 3584, "grad_in_forward"),
        (795, 3584, "recompute"),
        (1 << 20, 896, "recompute"),
    ],
)
def test_the_rule_in_16_bits_weighs_a_product_against_bytes(rows, width, expected):
    hidden = torch.empty(rows, width, dtype=torch.bfloat16, device="meta")
    assert choose_mode("auto", PPO, hidden, TRAINABLE, sampler=False) == expected


def test_the_least_rows_are_where_both_modes_take_as_long():
    flops, memory, vocabulary = 790e12, 4.3e12, 151936
    for width in (1536, 2048, 3584):
        rows = least_rows_in_forward(torch.empty(1, width, dtype=torch.bfloat16, device="meta"))
        product = 2 * rows * width * vocabulary / flops
        moved = (12 * rows + 6 * width) * vocabulary / memory
        assert product == pytest.approx(moved)


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


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"hidden": torch.ones(4, 5, 16)}, ValueError, r"\[4, 5, 16\], wanted \[N, H\]"),
        ({"hidden": torch.ones(10, 9)}, ValueError, r"hidden is \[10, 9\] and weight \[200, 16\]"),
        ({"weight": torch.ones(200, 16).bfloat16()}, TypeError, "weight is torch.bfloat16"),
        ({"targets": torch.zeros(9, dtype=torch.int64)}, ValueError, r"targets is \[9\]"),
        ({"targets": torch.zeros(10, dtype=torch.int32)}, TypeError, "int32, wanted int64"),
        ({"advantages": torch.ones(4)}, ValueError, r"advantages has shape \(4,\).*\(5,\) or"),
        ({"advantages": torch.ones(5, dtype=torch.int64)}, TypeError, "advantages.float()"),
        ({"scale": torch.ones(5, 2)}, ValueError, r"scale has shape \(5, 2\)"),
        ({"old": torch.ones(5)}, ValueError, r"old has shape \(5,\).*\[N\] = \(10,\)"),
        ({"mask": torch.ones(10)}, TypeError, "mask is torch.float32; wanted torch.bool"),
        (
            {"on_policy": torch.ones(10).bool()},
            ValueError,
            r"on_policy .* per sequence = \(5,\)",
        ),
        ({"offsets": torch.tensor([0, 5])}, ValueError, r"advantages has shape \(5,\)"),
        ({"offsets": torch.tensor([0, 3, 3, 7, 8, 11])}, ValueError, "from 0 to 11.*10"),
        ({"offsets": torch.tensor([0.0, 10.0])}, TypeError, "offsets is torch.float32"),
        ({"spec": PPO, "ref": None}, ValueError, "beta is 0.1 and ref is None"),
        ({"temperature": 0.0}, ValueError, "temperature is 0.0"),
        ({"softcap": -1.0}, ValueError, "softcap is -1.0"),
        ({"bias": torch.ones(199)}, ValueError, r"bias is \[199\], wanted \[200\]"),
        ({"metrics": "all"}, ValueError, "metrics is 'all'"),
        ({"ref": torch.ones(10, device="meta")}, ValueError, "ref is on meta and hidden on"),
        ({"weight": torch.ones(200, 16, device="meta")}, ValueError, "weight is on meta"),
    ],
)
def test_refusals_say_what_was_seen(changes, error, words):
    given = problem(given="old ref mask on_policy").to(torch.float32)
    with pytest.raises(error, match=words):
        linear_policy_loss(**keywords(given, **changes))


def test_a_scored_target_outside_the_vocabulary_is_refused(torch_kernel, monkeypatch):
    if DEVICE != "cpu":  # a device assertion would end the CUDA context
        monkeypatch.setenv("RRGKERN_CHECK", "1")
    given = problem(given="old mask").to(torch.float32)
    wrong = given.targets.masked_fill(~given.policy.mask, -100)
    linear_policy_loss(**keywords(given, targets=wrong))
    with pytest.raises(IndexError, match=r"is -100.*wanted 0 to 199"):
        linear_policy_loss(**keywords(given, targets=wrong, mask=None))
