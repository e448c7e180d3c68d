"""Losses and log-probabilities refuse forward mode and torch.func, which have no rule for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import rrgkern
from tests.rrgkern.device import DEVICE

OFFSETS = torch.tensor([0, 3, 8], device=DEVICE)
TARGETS = torch.arange(8, device=DEVICE)
PAIRS = rrgkern.PreferencePairs(
    torch.tensor([0], device=DEVICE), torch.tensor([1], device=DEVICE), torch.ones(1, device=DEVICE)
)
POLICY = {"offsets": OFFSETS, "scale": torch.ones(8, device=DEVICE)}
POLICY["advantages"] = torch.ones(2, device=DEVICE)


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, device=DEVICE)


BONUS = rrgkern.PolicyLoss(entropy_coef=0.1)
# The function of the tensor that it differentiates, and the shape of that.
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "policy_loss": (lambda x: rrgkern.policy_loss(x, **POLICY).loss, (8,)),
    "entropy of policy_loss": (
        lambda x: rrgkern.policy_loss(-ones(8), **POLICY, entropy=x, spec=BONUS).loss,
        (8,),
    ),
    "policy_loss_from_logits": (
        lambda x: rrgkern.policy_loss_from_logits(x, TARGETS, **POLICY).loss,
        (8, 9),
    ),
    "linear_policy_loss": (
        lambda x: rrgkern.linear_policy_loss(x, ones(9, 4), TARGETS, **POLICY).loss,
        (8, 4),
    ),
    "weight of linear_policy_loss": (
        lambda x: rrgkern.linear_policy_loss(ones(8, 4), x, TARGETS, **POLICY).loss,
        (9, 4),
    ),
    "token_logps": (lambda x: rrgkern.token_logps(x, TARGETS).logps, (8, 9)),
    "linear_token_logps": (
        lambda x: rrgkern.linear_token_logps(x, ones(9, 4), TARGETS).logps,
        (8, 4),
    ),
    "preference_loss": (lambda x: rrgkern.preference_loss(x, ones(8), OFFSETS, PAIRS).loss, (8,)),
    "gather_rows": (lambda x: rrgkern.gather_rows(x, TARGETS), (8, 3)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_tangent_is_refused(name: str, requires_grad: bool) -> None:
    function, shape = FUNCTIONS[name]
    x = -torch.rand(shape, device=DEVICE)
    expected = function(x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.requires_grad_(requires_grad), torch.ones_like(x))
        with pytest.raises(NotImplementedError, match="carries a tangent"):
            function(dual)
        # What has none is served all the same.
        assert torch.equal(function(x), expected)
    with pytest.raises(NotImplementedError, match="carries a tangent"):
        torch.func.jvp(function, (x,), (torch.ones_like(x),))


def test_torch_func_is_refused_and_vmap_served() -> None:
    func = torch.func
    wrong = {}
    for name, (function, shape) in FUNCTIONS.items():

        def scalar(x: Tensor, function: Callable[[Tensor], Tensor] = function) -> Tensor:
            return function(x).sum()

        x = -torch.rand(shape, device=DEVICE)
        batched = torch.stack([x, x / 2])
        ways = {
            "grad": lambda: func.grad(scalar)(x),  # noqa: B023
            "vjp": lambda: func.vjp(function, x),  # noqa: B023
            "jacrev": lambda: func.jacrev(function)(x),  # noqa: B023
            "jacfwd": lambda: func.jacfwd(scalar)(x),  # noqa: B023
            "hessian": lambda: func.hessian(scalar)(x),  # noqa: B023
            "vmap of grad": lambda: func.vmap(func.grad(scalar))(batched),  # noqa: B023
            "grad of vmap": lambda: func.grad(lambda x: func.vmap(scalar)(x).sum())(batched),  # noqa: B023
        }
        for way, call in ways.items():
            try:
                wrong[name, way] = call()
            except NotImplementedError as error:
                if "\n" in str(error) or "torch.autograd.grad" not in str(error):
                    wrong[name, way] = error
            except Exception as error:
                wrong[name, way] = error
    assert not wrong, "\n".join(f"{case}: {said}" for case, said in wrong.items())
    # Under torch.vmap autograd gives every gradient, that of the one pass too.
    logits = torch.rand(2, 8, 9, device=DEVICE, requires_grad=True)
    one_pass = FUNCTIONS["policy_loss_from_logits"][0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch tells that it goes sample by sample
        mapped = torch.vmap(one_pass)(logits).sum()
    (found,) = torch.autograd.grad(mapped, logits)
    (wanted,) = torch.autograd.grad(one_pass(logits[0]) + one_pass(logits[1]), logits)
    torch.testing.assert_close(found, wanted)
