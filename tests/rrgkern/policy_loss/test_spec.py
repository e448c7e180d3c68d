"""Variants that make no sense are refused when they are written down."""

from __future__ import annotations

import dataclasses
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rrgkern import PolicyLoss
from rrgkern.policy_loss import op
from rrgkern.policy_loss import spec as policy_spec
from rrgkern.policy_loss.from_logits import op as logits_op
from rrgkern.policy_loss.linear import op as linear_op
from rrgkern.triton_lib.policy import SURROGATE_CODES
from tests.rrgkern.policy_loss.cases import variants


def test_the_defaults() -> None:
    spec = PolicyLoss()
    assert (spec.surrogate, spec.ratio_level, spec.kl) == ("clip", "token", "k3")
    assert (spec.eps_low, spec.eps_high, spec.dual_clip, spec.beta) == (0.2, 0.2, None, 0.0)


@pytest.mark.parametrize(
    ("enum", "names"),
    [
        ("Surrogate", policy_spec.SURROGATES),
        ("Level", policy_spec.RATIO_LEVELS),
        ("Kl", policy_spec.KLS),
        ("SamplerMode", policy_spec.SAMPLER_MODES),
    ],
)
def test_csrc_numbers_the_variants_in_the_same_order(enum: str, names: tuple[str, ...]) -> None:
    header = Path(__file__).parents[3] / "csrc/policy_loss/policy_loss.h"
    listed = re.search(rf"enum class {enum} {{(.*?)}};", header.read_text(), re.DOTALL)
    assert listed
    members = [member.strip().removeprefix("k") for member in listed[1].split(",")]
    in_csrc = [re.sub(r"(?<=.)(?=[A-Z])", "_", member).lower() for member in members]
    assert in_csrc == [name.removeprefix("k") for name in names]


def test_triton_has_a_code_for_each_surrogate() -> None:
    assert set(SURROGATE_CODES) == set(policy_spec.SURROGATES)


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PolicyLoss().beta = 0.1  # type: ignore[misc]


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
        ({"ratio_level": "batch"}, "ratio_level is 'batch'"),
        ({"kl": "k4"}, "kl is 'k4'"),
        ({"sampler_level": "group"}, "sampler_level is 'group'"),
        ({"sampler_mode": "clip"}, "sampler_mode is 'clip'"),
        ({"eps_low": -0.1}, "eps_low is -0.1; it must be finite and at least 0"),
        ({"eps_high": torch.inf}, "eps_high is inf"),
        ({"eps_high": None}, "eps_high is None; it must be a number"),
        ({"beta": "0.1"}, "beta is '0.1'; it must be a number"),
        ({"beta": True}, "beta is True"),
        ({"beta": -0.1}, "beta is -0.1"),
        ({"beta": torch.nan}, "beta is nan"),
        ({"beta": torch.ones(2)}, "it must be a number"),
        ({"beta": np.True_}, "it must be a number"),
        ({"beta": torch.tensor(True)}, "it must be a number"),
        ({"beta": np.complex64(1)}, "it must be a number"),
        ({"beta": float}, "it must be a number"),
        ({"kl_ratio_weight": "no"}, "kl_ratio_weight is 'no'; it must be True or False"),
        ({"kl_ratio_weight": 1}, "kl_ratio_weight is 1"),
        ({"entropy_coef": torch.inf}, "entropy_coef is inf; it must be finite"),
        ({"eps_low": None}, "eps_low is None with surrogate 'clip'; only 'cispo'"),
        ({"dual_clip": 1.2}, "dual_clip is 1.2; it must lie above 1 \\+ eps_high = 1.2"),
        ({"dual_clip": 3.0, "surrogate": "cispo"}, "dual_clip is 3.0 with surrogate 'cispo'"),
        ({"sampler_min": 3.5}, "sampler_min is 3.5, above sampler_max 3.0"),
        ({"sapo_tau_pos": 0.0}, "sapo_tau_pos is 0.0; it must be finite and above 0"),
        ({"vespo_lambda_neg": -1.0}, "vespo_lambda_neg is -1.0"),
        ({"surrogate": "luspo"}, "ratio_level is 'token' with surrogate 'luspo'"),
        ({"surrogate": "vespo", "ratio_level": "sequence"}, "ratio_level is 'sequence'"),
        ({"surrogate": "vespo", "sampler_level": "sequence"}, "sampler_level is 'sequence'"),
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
    assert PolicyLoss(sampler_level="sequence").ties_tokens(sampler=True)
    assert PolicyLoss(surrogate="vespo").ties_tokens(sampler=False)
    for level in ("sequence", "sequence_token"):
        assert PolicyLoss(ratio_level=level).ties_tokens(sampler=False)


# The schemas of the ops stay what exported graphs hold, whatever the records look like.
NUMBERS = (
    "Tensor advantages, Tensor offsets, Tensor scale, Tensor? old, Tensor? ref, Tensor? sampler"
)
FLAGS = "Tensor? on_policy, Tensor? mask, bool advantage_per_token, bool scale_per_token"
FROM_LOGITS = (
    f"Tensor targets, {NUMBERS}, Tensor? weight, {FLAGS}, float temperature, bool entropy, str spec"
)
SCHEMAS = {
    "policy_loss_fwd": (
        f"(Tensor logps, {NUMBERS}, Tensor? weight, Tensor? entropy, {FLAGS}, str spec) "
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
        f"{NUMBERS}, Tensor? token_weight, {FLAGS}, str spec, float temperature, float softcap, "
        "str mode, bool want_hidden, bool want_weight, bool want_bias, bool entropy, "
        f"bool all_metrics) -> ({', '.join(['Tensor'] * 11)})"
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_stays(name):
    module = next(m for m in (op, logits_op, linear_op) if hasattr(m, name))
    schema = str(getattr(module, name)._opoverload._schema)
    assert schema == f"rrgkern::{name}{SCHEMAS[name]}"
