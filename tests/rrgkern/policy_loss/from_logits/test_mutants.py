"""Wrong losses and gradients that the yardstick must refuse, each planted in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tests.gradient_mutants import GRADIENT_MUTANTS
from tests.rrgkern.policy_loss.from_logits.cases import EVERYTHING, Outcome, Problem, check, problem
from tests.rrgkern.policy_loss.from_logits.test_kernel import compiled_cpu, through_op

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
SPEC = replace(EVERYTHING, sampler_min=0.6, sampler_max=1.5)


def without(name: str) -> Callable[[Problem], Problem]:
    return lambda given: given._replace(data=given.data.changed(**{name: None}))


INPUTS: dict[str, Callable[[Problem], Problem]] = {
    "missing token weight": without("token_weight"),
    "mask ignored": without("mask"),
    "old ignored": without("old"),
    "sampler ignored": without("sampler"),
    "on-policy flag ignored": without("on_policy"),
    "no scale": lambda g: g._replace(
        data=g.data.changed(scale=torch.ones_like(g.data.scale)),
    ),
    "no temperature": lambda g: g._replace(temperature=1.0),
    "the next target": lambda g: g._replace(targets=(g.targets + 1) % g.logits.shape[-1]),
}
SPECS = {
    "no KL": replace(SPEC, beta=0.0),
    "another KL": replace(SPEC, kl="k2"),
    "no entropy bonus": replace(SPEC, entropy_coef=0.0),
    "another clip": replace(SPEC, eps_low=0.02, eps_high=0.02),
}


@pytest.fixture(scope="module")
def given() -> Problem:
    return problem(1, 60, dtype=torch.bfloat16)


@pytest.mark.parametrize("kernel", [through_op, compiled_cpu])
def test_the_right_one_passes(kernel, given: Problem) -> None:
    check(kernel(given, SPEC), given, SPEC)


@pytest.mark.gate
@pytest.mark.parametrize("name", GRADIENT_MUTANTS)
def test_a_wrong_gradient_dies(name: str, given: Problem) -> None:
    right = through_op(given, SPEC)
    mutant = GRADIENT_MUTANTS[name](right.gradient, given.targets, given.temperature)
    with pytest.raises(AssertionError, match="too far from the truth"):
        check(right._replace(gradient=mutant), given, SPEC)


@pytest.mark.gate
@pytest.mark.parametrize("name", INPUTS)
def test_a_forgotten_input_dies(name: str, given: Problem) -> None:
    with pytest.raises(AssertionError):
        check(through_op(INPUTS[name](given), SPEC), given, SPEC)


@pytest.mark.gate
@pytest.mark.parametrize("name", SPECS)
def test_another_loss_dies(name: str, given: Problem) -> None:
    with pytest.raises(AssertionError):
        check(through_op(given, SPECS[name]), given, SPEC)


def test_half_a_loss_dies(given: Problem) -> None:
    right: Outcome = through_op(given, SPEC)
    with pytest.raises(AssertionError, match="too far from the truth"):
        check(right._replace(loss=right.loss / 2), given, SPEC)
