"""Faults planted in each mode, one at a time, that the comparison with fp64 must refuse."""

from __future__ import annotations

import pytest
import torch

from rrgkern import PolicyLoss
from rrgkern.policy_loss.linear import forward as compute
from rrgkern.policy_loss.linear import gradients as in_forward
from rrgkern.policy_loss.linear import op, rows, triton_kernels
from tests.gradient_mutants import GRADIENT_MUTANTS
from tests.mutants import faults, mutate
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss.linear.cases import VOCABULARY, check, ours, problem

cpu_tile, cpu_kernels = op.CPU_PLAN.tiles.kernels, op.CPU_PLAN.rows
on_cpu = pytest.mark.skipif(DEVICE != "cpu", reason="mutants of what serves CPUs")

MODULES = {
    "compute": compute, "in_forward": in_forward, "op": op, "rows": rows,
    "cpu_kernels": cpu_kernels, "cpu_tile": cpu_tile,
}  # fmt: skip
PLANTED = faults("linear policy loss")
SPECS = {
    "recompute": PolicyLoss(ratio_level="sequence", entropy_coef=0.05),
    "grad_in_forward": PolicyLoss(surrogate="sapo"),
    "frozen_head": PolicyLoss(surrogate="sapo"),
}


def case(mode: str, tied: bool = False):
    spec = PolicyLoss(ratio_level="sequence") if tied else SPECS[mode]
    given = problem(spec, bias=True, softcap=3.0)
    given.policy.token_weight[::3] = 0.0
    return given


def judge(given, mode: str) -> None:
    frozen_head = mode == "frozen_head"
    check(
        ours(given, mode, frozen=frozen_head, upstream=0.3), given, frozen=frozen_head, upstream=0.3
    )


@pytest.mark.parametrize(("mode", "tied"), [*((m, False) for m in SPECS), ("frozen_head", True)])
def test_the_right_ones_pass(torch_kernel, mode, tied):
    judge(case(mode, tied), mode)


@pytest.mark.gate
@on_cpu
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_noticed(torch_kernel, monkeypatch, name):
    # Two rows held: a few live rows make several blocks.
    monkeypatch.setattr(op, "CPU_PLAN", op.CPU_PLAN._replace(held=2 * VOCABULARY))
    if DEVICE == "cpu":  # where the interpreter is on, the plan of Triton's kernels serves
        monkeypatch.setattr(triton_kernels, "PLAN", op.CPU_PLAN)
    mode, user, what, source, right, wrong = PLANTED[name]
    mutant = mutate(MODULES[source], right, wrong)
    monkeypatch.setattr(MODULES[user], what, getattr(mutant, what))
    with pytest.raises(AssertionError):
        judge(case(mode, tied="tied" in name), mode)


@pytest.mark.gate
@on_cpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", GRADIENT_MUTANTS)
def test_a_wrong_gradient_of_the_logits_is_noticed(torch_kernel, monkeypatch, name, dtype):
    given = problem(PolicyLoss(beta=0.05), dtype=dtype).to(dtype)
    right, wrong = cpu_tile.softmax_gradient, GRADIENT_MUTANTS[name]

    def gradient(z, targets, columns, stats, coefficients, temperature):
        local = (targets - columns.start).clamp(0, z.shape[1] - 1)
        dz = right(z, targets, columns, stats, coefficients, temperature)
        return wrong(dz, local, temperature)

    monkeypatch.setattr(cpu_tile, "softmax_gradient", gradient)
    for mode in ("grad_in_forward", "recompute"):
        with pytest.raises(AssertionError, match="too far from the truth"):
            check(ours(given, mode), given)


@pytest.mark.gate
@pytest.mark.parametrize("left_out", ["token_weight", "on_policy", "mask", "old", "ref"])
def test_an_argument_that_is_ignored_is_noticed(torch_kernel, left_out):
    given = problem(PolicyLoss(), lengths=(4, 0, 5, 1, 4), given="old mask token_weight on_policy")
    if left_out == "ref":
        given = problem(PolicyLoss(beta=0.1), given="old ref")
        zero = torch.zeros_like(given.policy.ref)
        less = given._replace(policy=given.policy._replace(ref=zero))
    else:
        less = given._replace(policy=given.policy._replace(**{left_out: None}))
    for mode in ("grad_in_forward", "recompute"):
        with pytest.raises(AssertionError):
            check(ours(less, mode), given)
