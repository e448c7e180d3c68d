"""The weight's gradient straight into `.grad`, tied embeddings, and where it is refused."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from rrgkern import PolicyLoss, dispatch, linear_policy_loss, linear_token_logps
from rrgkern.logps import from_hidden
from rrgkern.logps import op as logps_op
from rrgkern.policy_loss.linear import autograd, op
from tests.rrgkern.device import DEVICE
from tests.rrgkern.policy_loss.linear.cases import keywords, ours, problem
from tests.skips import no_case

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")


def called(given, **options):
    arguments = keywords(given, accumulate_weight_grad=True, **options)
    for name in ("hidden", "weight", "bias"):
        if arguments[name] is not None:
            arguments[name] = arguments[name].detach().clone().requires_grad_()
    return arguments


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("before", [False, True])
def test_it_adds_what_autograd_would(kernel, dtype, before):
    if kernel == "triton" and not (before and dtype == torch.float64):
        no_case("the slices are added by PyTorch: its twin shows the rest")
    given = problem(PolicyLoss(beta=0.1, entropy_coef=0.1), bias=True, dtype=dtype).to(dtype)
    expected = ours(given, "recompute", upstream=0.3)
    arguments = called(given)
    weight, total = arguments["weight"], expected.weight.clone()
    if before:
        weight.grad = torch.randn_like(weight)
        total += weight.grad
        kept = weight.grad
    (0.3 * linear_policy_loss(**arguments).loss).backward()
    assert not before or weight.grad is kept
    eps = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(weight.grad, total, rtol=eps, atol=eps * float(total.abs().max()))
    for name in ("hidden", "bias"):
        assert torch.equal(arguments[name].grad, getattr(expected, name))


@pytest.mark.parametrize("mode", ["grad_in_forward", "recompute", "into grad"])
def test_tied_embeddings_get_both_gradients(torch_kernel, mode):
    # The head's weight is the table that made the hidden states.
    given = problem(given="old")
    words = torch.randint(200, (len(given.targets),), generator=torch.Generator().manual_seed(5))
    words = words.to(given.weight.device)

    def loss_of(table, **options):
        hidden = torch.tanh(table[words]) + given.hidden
        return linear_policy_loss(**keywords(given, hidden=hidden, weight=table, **options)).loss

    table = given.weight.clone().requires_grad_()
    options = {"accumulate_weight_grad": True} if mode == "into grad" else {"mode": mode}
    loss_of(table, **options).backward()

    apart = [given.weight.clone().requires_grad_() for _ in range(2)]
    hidden = torch.tanh(apart[0][words]) + given.hidden
    linear_policy_loss(
        **keywords(given, hidden=hidden, weight=apart[1], mode="recompute")
    ).loss.backward()
    torch.testing.assert_close(table.grad, apart[0].grad + apart[1].grad, rtol=1e-10, atol=1e-13)


def test_nothing_is_added_without_a_backward(torch_kernel):
    arguments = called(problem(given="old"))
    loss = linear_policy_loss(**arguments).loss
    assert arguments["weight"].grad is None and loss.requires_grad
    with torch.no_grad():
        assert not linear_policy_loss(**arguments).loss.requires_grad


class TestRefused:
    """Wherever autograd's hooks are what others wait for."""

    def test_a_weight_that_is_no_leaf(self):
        arguments = called(problem(given="old"))
        arguments["weight"] = arguments["weight"] * 1.0
        with pytest.raises(ValueError, match="weight is no leaf"):
            linear_policy_loss(**arguments)

    def test_a_frozen_weight(self):
        arguments = called(problem(given="old"))
        arguments["weight"].requires_grad_(False)
        with pytest.raises(ValueError, match="no leaf that requires a gradient"):
            linear_policy_loss(**arguments)

    @pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
    def test_hooks(self, kind):
        arguments = called(problem(given="old"))
        getattr(arguments["weight"], kind)(lambda *_: None)
        with pytest.raises(ValueError, match="gradient hook, which would not fire"):
            linear_policy_loss(**arguments)

    def test_several_ranks(self, monkeypatch):
        # As DDP runs; its own hooks are in C++ and cannot be seen from here.
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "get_world_size", lambda: 2)
        with pytest.raises(ValueError, match="with 2 ranks; the hooks by which DDP and FSDP2"):
            linear_policy_loss(**called(problem(given="old")))

    def test_under_compile(self):
        arguments = called(problem(given="old"))
        compiled = torch.compile(
            lambda: linear_policy_loss(**arguments).loss, fullgraph=True, backend="eager"
        )
        with pytest.raises(Exception, match="accumulate_weight_grad is True under torch.compile"):
            compiled()


# Eager CPU tensors reach csrc's launchers without the dispatcher; all else gets the ops.
on_cpu = pytest.mark.skipif(DEVICE != "cpu", reason="csrc's kernels take CPU tensors")
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


@on_cpu
@pytest.mark.parametrize("mode", [*MODES, "log-probabilities"])
def test_results_are_those_of_the_ops_to_the_bit(launched, monkeypatch, mode) -> None:
    called = keywords(problem(PolicyLoss(beta=0.1)).to(torch.float32), mode=mode)
    names = ["policy_loss_fwd", "token_logps_bwd" if mode == "recompute" else "policy_loss_scale_"]

    def total(*operands: Tensor, **others) -> Tensor:
        if mode in MODES:
            return linear_policy_loss(*operands, **others).loss
        logps, entropy = linear_token_logps(*operands, **others, entropy=True)
        return logps.sum() + 2 * entropy.sum()

    if mode not in MODES:
        called = {name: called[name] for name in ("hidden", "weight", "targets", "bias")}
        names = ["token_logps_fwd", "token_logps_bwd"]
    direct = gradients(total, called, mode == "frozen_head")
    assert launched == names
    for module in (op, autograd, logps_op):
        monkeypatch.setattr(module, "direct", lambda called, *tensors: called)
    through_ops = gradients(total, called, mode == "frozen_head")
    assert launched == names
    assert all(map(torch.equal, direct, through_ops))


@on_cpu
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
