"""Faults planted in each mode, one at a time, that the comparison with fp64 must refuse."""

from __future__ import annotations

import pytest
import torch

from rrgkern import PolicyLoss
from rrgkern.policy_loss.linear import forward as compute
from rrgkern.policy_loss.linear import gradients as in_forward
from rrgkern.policy_loss.linear import op, rows, triton_kernels
from tests.gradient_mutants import GRADIENT_MUTANTS
from tests.mutants import mutate
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss.linear.cases import VOCABULARY, check, ours, problem

cpu_tile, cpu_kernels = op.CPU_PLAN.tiles.kernels, op.CPU_PLAN.rows
on_cpu = pytest.mark.skipif(DEVICE != "cpu", reason="mutants of what serves CPUs")

# (mode, who uses it, what, where it is defined, the right text, the wrong text)
PLANTED = {
    "no rescaling": (
        *("frozen_head", compute, "directions", in_forward),
        *("plan.rows.rescale(part, decay)", "pass"),
    ),
    "other columns added": (
        *("frozen_head", cpu_kernels, "direction", cpu_kernels),
        *("rows -= total[block]", "rows += total[block]"),
    ),
    "no target": (
        *("frozen_head", cpu_kernels, "direction", cpu_kernels),
        *("(c * at_target[block, None])", "0.0"),
    ),
    "1/T missing in the direction": (
        *("frozen_head", cpu_kernels, "direction", cpu_kernels),
        *("coef[block, None] / head.temperature", "coef[block, None] / 1.0"),
    ),
    "the target's cap has slope 1": (
        *("frozen_head", cpu_kernels, "direction", cpu_kernels),
        *("if head.softcap:", "if False:"),
    ),
    "the others' cap has slope 1": (
        *("frozen_head", cpu_tile, "exponentials", cpu_tile),
        *("if slope is not None:", "if False:"),
    ),
    "decay of the wrong sign": (
        *("frozen_head", cpu_tile, "exponentials", cpu_tile),
        *("torch.exp(-drop)", "torch.exp(drop)"),
    ),
    "upstream gradient ignored": (
        *("frozen_head", cpu_kernels, "scale", cpu_kernels),
        *("part.to(factor.dtype) * factor", "part.to(factor.dtype)"),
    ),
    "the last block is the weight's gradient": (
        *("grad_in_forward", compute, "gradients_in_forward", in_forward),
        *("first=lo == 0", "first=True"),
    ),
    "the last block is the bias's gradient": (
        *("grad_in_forward", compute, "gradients_in_forward", in_forward),
        *("self.d_bias[columns] += ", "self.d_bias[columns] = "),
    ),
    "the last slice is the hidden states' gradient": (
        *("grad_in_forward", compute, "gradients_in_forward", in_forward),
        *("first=columns.start == 0", "first=True"),
    ),
    "every block is the first of the batch": (
        *("grad_in_forward", compute, "gradients_in_forward", in_forward),
        *("policy_of_block(policy, block)", "policy_of_block(policy, slice(0, hi - lo))"),
    ),
    "cap of slope 1": (
        *("grad_in_forward", cpu_tile, "tile_gradient", cpu_tile),
        *("return dz if slope is None else dz.mul_(slope)", "return dz"),
    ),
    "rows of the rest stay 0": (
        *("grad_in_forward", op, "forward", compute),
        *("if len(rows.values_only):", "if False:"),
    ),
    "tied sequences lose their weightless tokens": (
        *("frozen_head", compute, "rows_with_gradient", rows),
        *("if policy.ties_tokens:", "if False:"),
    ),
    "entropy without gradient": (
        *("recompute", op, "forward", compute),
        *("[coef, coef_entropy, *of", "[coef, coef_entropy * 0, *of"),
    ),
}
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
    monkeypatch.setattr(user, what, getattr(mutate(source, right, wrong), what))
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
