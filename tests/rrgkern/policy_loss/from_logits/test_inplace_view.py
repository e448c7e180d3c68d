"""In place on whole logits and on a slice of them: both gradients are right, one costs memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rrgkern import PolicyLoss, policy_loss_from_logits
from tests.rrgkern.device import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
ROWS, LENGTH, VOCABULARY = 2, 5, 33
SPECS = {"one pass": PolicyLoss(), "composed": PolicyLoss(ratio_level="sequence")}


class Made(TorchDispatchMode):
    """Count tensors of the logits' size that an operator made, not a view and not in place."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for returned, made in zip(func._schema.returns, tree_leaves(out), strict=False):
            if isinstance(made, Tensor) and returned.alias_info is None:
                self.count += made.numel() >= ROWS * LENGTH * VOCABULARY
        return out


def gradient(spec: PolicyLoss, *, whole: bool, inplace: bool) -> tuple[Tensor, int]:
    """Return the gradient of [ROWS, LENGTH + 1, VOCABULARY] logits, and what was `Made`."""
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS, LENGTH + 1, VOCABULARY)
    leaf = torch.randn(shape, generator=generator).to(DEVICE).requires_grad_()
    targets = torch.randint(VOCABULARY, shape[:2], generator=generator).to(DEVICE)
    mask = (torch.arange(LENGTH + 1) < LENGTH).expand(shape[:2]).flatten().to(DEVICE)
    places = LENGTH + whole
    logits = leaf * 1
    loss = policy_loss_from_logits(
        logits if whole else logits[:, :-1],
        targets if whole else targets[:, :-1],
        torch.tensor([1.0, -0.5], device=DEVICE),
        torch.arange(0, ROWS * places + 1, places, device=DEVICE),
        scale=torch.full((ROWS,), 0.1, device=DEVICE),
        mask=mask if whole else None,
        spec=spec,
        inplace=inplace,
    ).loss
    with Made() as seen:
        (found,) = torch.autograd.grad(loss, logits)
    return found, seen.count


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_slice_has_the_right_gradient_and_whole_logits_cost_no_memory(spec: PolicyLoss) -> None:
    wanted, _ = gradient(spec, whole=False, inplace=False)
    assert wanted[:, -1].eq(0).all() and wanted[:, :-1].ne(0).any(-1).all()
    for whole in (True, False):
        found, made = gradient(spec, whole=whole, inplace=True)
        torch.testing.assert_close(found, wanted)
        assert (made == 0) == whole
