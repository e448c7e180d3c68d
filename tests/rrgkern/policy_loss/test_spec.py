"""Variants that make no sense are refused when they are written down."""

from __future__ import annotations

import dataclasses
import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rrgkern import PolicyLoss, loss_scale
from rrgkern.policy_loss import AGGREGATIONS, op
from rrgkern.policy_loss import spec as policy_spec
from rrgkern.policy_loss.from_logits import op as logits_op
from rrgkern.policy_loss.linear import op as linear_op
from rrgkern.policy_loss.reference import METRICS, policy_loss_reference, slopes
from tests.products import first_of, more
from tests.rrgkern.policy_loss.cases import Batch, batch, name_of, sampled_variants, variants
from tests.rrgkern.policy_loss.plain_loop import loop_loss


@pytest.mark.parametrize(
    ("enum", "names"),
    [
        ("Surrogate", policy_spec.SURROGATES),
        ("Level", policy_spec.RATIO_LEVELS),
        ("Kl", policy_spec.KLS),
        ("SamplerMode", policy_spec.SAMPLER_MODES),
        ("SamplerLevel", policy_spec.SAMPLER_LEVELS),
    ],
)
def test_csrc_numbers_the_variants_in_the_same_order(enum: str, names: tuple[str, ...]) -> None:
    header = Path(__file__).parents[3] / "csrc/policy_loss/policy_loss.h"
    listed = re.search(rf"enum class {enum} {{(.*?)}};", header.read_text(), re.DOTALL)
    assert listed
    members = [member.strip().removeprefix("k") for member in listed[1].split(",")]
    in_csrc = [re.sub(r"(?<=.)(?=[A-Z])", "_", member).lower() for member in members]
    assert in_csrc == [name.removeprefix("k") for name in names]


def test_crosses_the_boundary_unchanged() -> None:
    for spec in variants():
        assert PolicyLoss.decode(spec.encode()) == spec
        assert pickle.loads(pickle.dumps(spec)).encode() == spec.encode()
    odd = PolicyLoss(beta=0.1 + 0.2, eps_high=1 / 3, sampler_max=None)
    assert PolicyLoss.decode(odd.encode()) == odd
    assert PolicyLoss.decode(dataclasses.replace(odd, beta=1.0).encode()).beta == 1.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"surrogate": "ppo"}, "surrogate is 'ppo'; choose one of 'clip', 'cispo'"),
        ({"eps_low": -0.1}, "eps_low is -0.1; it must be finite and at least 0"),
        ({"beta": torch.nan}, "beta is nan"),
        ({"eps_low": None}, "eps_low is None with surrogate 'clip'; only 'cispo'"),
        ({"dual_clip": 1.2}, "dual_clip is 1.2; it must lie above 1 \\+ eps_high = 1.2"),
        ({"dual_clip": 3.0, "surrogate": "cispo"}, "dual_clip is 3.0 with surrogate 'cispo'"),
        ({"sampler_min": 3.5}, "sampler_min is 3.5, above sampler_max 3.0"),
        ({"sapo_tau_pos": 0.0}, "sapo_tau_pos is 0.0; it must be finite and above 0"),
        ({"surrogate": "luspo"}, "ratio_level is 'token' with surrogate 'luspo'"),
        ({"surrogate": "vespo", "ratio_level": "sequence"}, "ratio_level is 'sequence'"),
    ],
)
def test_nonsense_is_one_clear_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        PolicyLoss(**fields)
    assert "\n" not in str(caught.value)


def test_a_field_that_there_is_not_names_the_nearest() -> None:
    for name, hint in {"eps": "eps_low", "clip_high": "eps_high", "surogate": "surrogate"}.items():
        line = f"PolicyLoss has no field '{name}'; did you mean {hint}?"
        with pytest.raises(TypeError, match=re.escape(line)):
            PolicyLoss(**{name: 0.2})


def test_numbers_of_numpy_are_numbers() -> None:
    spec = PolicyLoss(beta=np.float32(0.25), eps_high=np.int64(1), dual_clip=np.float64(3))
    assert PolicyLoss(beta=torch.tensor(0.25, dtype=torch.bfloat16)).beta == 0.25
    assert spec == PolicyLoss(beta=0.25, eps_high=1.0, dual_clip=3.0)
    assert PolicyLoss.decode(spec.encode()) == spec


def test_variants_that_tie_the_tokens_of_a_sequence() -> None:
    assert not PolicyLoss().ties_tokens(sampler=True)
    assert not PolicyLoss(sampler_level="sequence").ties_tokens(sampler=False)
    assert PolicyLoss(sampler_level="geometric").ties_tokens(sampler=True)
    assert PolicyLoss(surrogate="vespo").ties_tokens(sampler=False)
    for level in ("sequence", "sequence_token"):
        assert PolicyLoss(ratio_level=level).ties_tokens(sampler=False)


# The schemas of the ops stay what exported graphs hold, whatever the records look like.
NUMBERS = (
    "Tensor advantages, Tensor offsets, Tensor scale, Tensor? old, Tensor? ref, Tensor? sampler"
)
NUMBERS += ", Tensor? token_weight"
FLAGS = "Tensor? on_policy, Tensor? mask, bool advantage_per_token, bool scale_per_token"
FROM_LOGITS = f"Tensor targets, {NUMBERS}, {FLAGS}, str spec, float temperature, bool entropy"
SCHEMAS = {
    "policy_loss_fwd": (
        f"(Tensor logps, Tensor? entropy, {NUMBERS}, {FLAGS}, str spec) "
        f"-> ({', '.join(['Tensor'] * 4)})"
    ),
    "policy_loss_from_logits_fwd": (
        f"(Tensor logits, {FROM_LOGITS}, bool with_gradient) -> ({', '.join(['Tensor'] * 4)})"
    ),
    "policy_loss_from_logits_fwd_": (
        f"(Tensor(a0!) logits, {FROM_LOGITS}) -> ({', '.join(['Tensor'] * 3)})"
    ),
    "linear_policy_loss_fwd": (
        "(Tensor hidden, Tensor weight, Tensor? bias, Tensor targets, "
        f"{NUMBERS}, {FLAGS}, str spec, float temperature, float softcap, "
        "str mode, bool want_hidden, bool want_weight, bool want_bias, bool entropy, "
        f"bool all_metrics) -> ({', '.join(['Tensor'] * 11)})"
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_stays(name):
    module = next(m for m in (op, logits_op, linear_op) if hasattr(m, name))
    schema = str(getattr(module, name)._opoverload._schema)
    assert schema == f"rrgkern::{name}{SCHEMAS[name]}"


# The reference against the plain loop: values, metrics, and gradients by finite differences.
# The reference alone: no kernel to reach on a GPU.
CASES = sampled_variants(stride=3, device="cpu")
# 7 shares no factor with the counts of the choices, so every choice keeps coming up.
FEWER_CASES = sampled_variants(stride=7, device="cpu")


@pytest.mark.parametrize(
    ("spec", "data"), first_of(CASES, 50), ids=[name_of(spec) for spec, _ in CASES]
)
def test_loss_and_metrics_equal_the_plain_loop(spec: PolicyLoss, data: Batch) -> None:
    loss, coef, _, metrics = policy_loss_reference(*data.arguments(spec))
    expected, by_name = loop_loss(spec, data)
    torch.testing.assert_close(float(loss), expected, rtol=1e-12, atol=1e-14)
    got = dict(zip(METRICS, metrics.tolist(), strict=True))
    assert got.pop("active_tokens") == int((coef != 0).sum())
    assert got == pytest.approx(by_name, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(
    ("spec", "data"), first_of(FEWER_CASES, 20), ids=[name_of(spec) for spec, _ in FEWER_CASES]
)
def test_coef_is_the_slope_of_the_plain_loop(spec: PolicyLoss, data: Batch) -> None:
    _, coef, coef_entropy, _ = policy_loss_reference(*data.arguments(spec))
    logps = data.logps.tolist()
    step = 1e-6
    for t in range(len(logps)):
        ends = []
        for move in (step, -step):
            moved = list(logps)
            moved[t] += move
            ends.append(loop_loss(spec, data, moved)[0])
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float(coef[t]) == pytest.approx(slope, rel=1e-6, abs=1e-8)
    scale = data.scale
    if scale.numel() != len(logps):
        scale = scale.repeat_interleave(data.offsets.diff())
    expected = torch.where(data.keep, -spec.entropy_coef * scale, 0.0)
    torch.testing.assert_close(coef_entropy, expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("old", [True, *more(False)])
@pytest.mark.parametrize("per_token", [True, *more(False)])
def test_slopes_equal_autograd_of_the_terms(per_token: bool, old: bool) -> None:
    checked = 0
    for seed, spec in enumerate(variants()):
        data = batch(seed, per_token=per_token, old=old, device="cpu")
        logps = data.logps.clone().requires_grad_()
        entropy = data.entropy.clone().requires_grad_()
        moving = data.changed(logps=logps, entropy=entropy)
        t = moving.terms(spec)
        by_autograd = torch.autograd.grad((t.scale * t.loss).sum(), (logps, entropy))
        _, coef, coef_entropy, _ = policy_loss_reference(*data.arguments(spec))
        torch.testing.assert_close(coef, by_autograd[0], rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(coef_entropy, by_autograd[1], rtol=1e-10, atol=1e-14)
        with torch.no_grad():
            assert torch.equal(slopes(t, spec), coef)
        checked += 1
    assert checked == (4 * 3 + 2) * 3 * 2 * 6 + 3 * 2 * 2


# The weight of a token under each aggregation.
OFFSETS = torch.tensor([0, 4, 4, 5])  # lengths 4, 0, 1
OPTIONS: dict[str, dict[str, Any]] = {
    "dapo": {"total_tokens": 50, "world_size": 2},
    "dr_grpo": {"max_length": 10},
}


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("grpo", [1 / 12, 0.0, 1 / 3]),
        ("bnpo", [1 / 5, 0.0, 1 / 5]),
        ("dapo", [2 / 50, 0.0, 2 / 50]),
        ("dr_grpo", [1 / 30, 0.0, 1 / 30]),
        ("sum", [1 / 3, 0.0, 1 / 3]),
    ],
)
def test_by_hand(aggregation: str, expected: list[float]) -> None:
    scale = loss_scale(aggregation, OFFSETS, **OPTIONS.get(aggregation, {}))
    assert scale.dtype == torch.float32
    torch.testing.assert_close(scale, torch.tensor(expected), rtol=1e-7, atol=0)


def test_a_mask_counts_only_scored_tokens() -> None:
    mask = torch.tensor([True, False, True, False, True])
    grpo = loss_scale("grpo", OFFSETS, mask=mask)
    torch.testing.assert_close(grpo, torch.tensor([1 / 6, 0.0, 1 / 3]))
    bnpo = loss_scale("bnpo", OFFSETS, mask=mask)
    torch.testing.assert_close(bnpo, torch.tensor([1 / 3, 0.0, 1 / 3]))
    nothing = loss_scale("grpo", OFFSETS, mask=torch.zeros(5, dtype=torch.bool))
    assert nothing.eq(0).all()


def test_a_sum_or_mean_over_ranks_may_have_an_axis_or_a_fraction() -> None:
    for total in (torch.tensor([5]), torch.tensor(5.0) / 2):
        scale = loss_scale("dapo", OFFSETS, total_tokens=total)
        assert scale[0] == torch.tensor(1 / float(total))


@pytest.mark.parametrize("options", [{"max_length": 0}, {"total_tokens": 5, "world_size": 0}])
def test_counts_are_checked_under_compile_too(options: dict[str, int]) -> None:
    compiled = torch.compile(loss_scale, backend="eager")
    with pytest.raises(Exception, match="wanted a whole number of at least 1"):
        compiled("dr_grpo" if "max_length" in options else "dapo", OFFSETS, **options)


def test_no_token_on_any_rank_is_a_scale_of_zero() -> None:
    assert loss_scale("dapo", OFFSETS, total_tokens=torch.tensor(0), world_size=2).eq(0).all()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_without_tokens_or_sequences(aggregation: str) -> None:
    options = OPTIONS.get(aggregation, {})
    assert loss_scale(aggregation, torch.tensor([0]), **options).shape == (0,)
    assert loss_scale(aggregation, torch.tensor([0, 0, 0]), **options).eq(0).all()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("mean", OFFSETS), {}, ValueError, "aggregation is 'mean'; choose one of 'grpo'"),
        (("grpo", OFFSETS.int()), {}, TypeError, "offsets is torch.int32"),
        (("grpo", OFFSETS[:0]), {}, ValueError, r"offsets has shape \(0,\)"),
        (("dr_grpo", OFFSETS), {}, ValueError, "'dr_grpo' needs max_length"),
        (("dapo", OFFSETS), {}, ValueError, "'dapo' needs total_tokens"),
        (("bnpo", OFFSETS), {"total_tokens": 5}, ValueError, "only 'dapo' uses it"),
        (("grpo", OFFSETS), {"world_size": 2}, ValueError, "world_size is 2"),
        *(
            ((owner, OFFSETS), {**OPTIONS.get(owner, {}), name: count}, error, f"{name} ")
            for owner, name in (
                ("dr_grpo", "max_length"),
                ("dapo", "total_tokens"),
                ("dapo", "world_size"),
            )
            for count, error in (
                *((x, ValueError) for x in (0, -1, -1.5, 1.5, math.nan, math.inf)),
                *((x, TypeError) for x in ("5", True, [5])),
                *((torch.tensor(x), ValueError) for x in (-1, math.nan, [5, 5], True)),
            )
        ),
        (("grpo", OFFSETS), {"mask": torch.ones(5)}, TypeError, "mask is torch.float32"),
        (
            ("grpo", OFFSETS),
            {"mask": torch.ones(5, 1).bool()},
            ValueError,
            r"mask has shape \(5, 1\)",
        ),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        loss_scale(*arguments, **options)
    assert "\n" not in str(caught.value)
