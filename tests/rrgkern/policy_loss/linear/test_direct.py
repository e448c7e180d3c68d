"""Eager CPU tensors reach csrc's launchers without the dispatcher; all else gets the ops."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from rrgkern import PolicyLoss, dispatch, linear_policy_loss, linear_token_logps
from rrgkern.logps import from_hidden
from rrgkern.logps import op as logps_op
from rrgkern.policy_loss.linear import autograd, op
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss.linear.cases import keywords, problem

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="csrc's kernels take CPU tensors")
MODES = ("frozen_head", "grad_in_forward", "recompute")
SERVED = (
    (logps_op.linear_token_logps_fwd, partial(from_hidden.fwd, from_hidden.CSRC_TILES)),
    (logps_op.linear_token_logps_bwd, partial(from_hidden.bwd, from_hidden.CSRC_TILES)),
    (op.linear_policy_loss_fwd, partial(op._forward, op.CSRC_PLAN)),
    (op.linear_policy_loss_scale_, op.scale_in_place),
)


@pytest.fixture
def launched(monkeypatch) -> list[str]:
    """As without Triton's interpreter; the names of what was launched directly."""
    names: list[str] = []
    for served, launch in SERVED:

        def direct(*inputs, name=served._qualname, launch=launch):
            names.append(name.removeprefix("rrgkern::linear_"))
            return launch(*inputs)

        kernel = dispatch._Kernel("csrc", lambda: None, direct)
        monkeypatch.setitem(dispatch._kernels, (served._qualname, "cpu"), kernel)
        monkeypatch.setitem(served._backend_fns, "cpu", launch)
    return names


def gradients(function, called: dict[str, Tensor], frozen: bool = False) -> list[Tensor]:
    leaves = [called[name].clone().requires_grad_() for name in ("hidden", "weight")]
    leaves[1].requires_grad_(not frozen)
    others = {name: value for name, value in called.items() if name not in ("hidden", "weight")}
    loss = function(*leaves, **others)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    return [loss.detach(), *torch.autograd.grad(3 * loss, wanted)]


@pytest.mark.parametrize("mode", MODES)
def test_the_loss_is_that_of_the_ops_to_the_bit(launched, monkeypatch, mode) -> None:
    called = keywords(problem(PolicyLoss(beta=0.1)).to(torch.float32), mode=mode)

    def loss(*operands: Tensor, **others) -> Tensor:
        return linear_policy_loss(*operands, **others).loss

    direct = gradients(loss, called, mode == "frozen_head")
    backward = "token_logps_bwd" if mode == "recompute" else "policy_loss_scale_"
    assert launched == ["policy_loss_fwd", backward]
    for module in (op, autograd, logps_op):
        monkeypatch.setattr(module, "direct", lambda called, *tensors: called)
    through_ops = gradients(loss, called, mode == "frozen_head")
    assert launched == ["policy_loss_fwd", backward]
    assert all(map(torch.equal, direct, through_ops))


def test_log_probabilities_are_those_of_the_ops_to_the_bit(launched, monkeypatch) -> None:
    called = keywords(problem().to(torch.float32))
    called = {name: called[name] for name in ("hidden", "weight", "targets", "bias")}

    def total(*operands: Tensor, **others) -> Tensor:
        logps, entropy = linear_token_logps(*operands, **others, entropy=True)
        return logps.sum() + 2 * entropy.sum()

    direct = gradients(total, called)
    assert launched == ["token_logps_fwd", "token_logps_bwd"]
    with torch.no_grad():
        logps, entropy = linear_token_logps(**called, entropy=True)
    assert torch.equal(logps.sum() + 2 * entropy.sum(), direct[0])
    monkeypatch.setattr(logps_op, "direct", lambda called, *tensors: called)
    assert all(map(torch.equal, direct, gradients(total, called)))


def test_compilation_gets_the_ops(launched) -> None:
    called = keywords(problem(PolicyLoss(beta=0.1)).to(torch.float32))

    def loss(*operands: Tensor, **others) -> Tensor:
        logps = linear_token_logps(*operands, others["targets"]).logps
        return linear_policy_loss(*operands, **others).loss + logps.sum()

    eager = gradients(loss, called)
    direct = len(launched)
    compiled = gradients(torch.compile(loss, fullgraph=True, backend="aot_eager"), called)
    assert len(launched) == direct > 0
    for got, want in zip(compiled, eager, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_a_second_backward_is_refused(launched, factor) -> None:
    called = keywords(problem().to(torch.float32), mode="grad_in_forward")
    called["hidden"] = called["hidden"].clone().requires_grad_()
    loss = factor * linear_policy_loss(**called).loss
    loss.backward(retain_graph=True)
    assert "policy_loss_scale_" in launched
    with pytest.raises(RuntimeError, match="a second backward through one linear_policy_loss"):
        loss.backward()
