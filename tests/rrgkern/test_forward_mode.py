"""Losses and log-probabilities refuse tangents, which PyTorch would leave out or make zeros."""

from __future__ import annotations

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


# The function of the tensor that it differentiates, and the shape of that.
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "policy_loss": (lambda x: rrgkern.policy_loss(x, **POLICY).loss, (8,)),
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
