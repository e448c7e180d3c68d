"""The op as PyTorch sees it: registration, autograd, compilation, refusals, reproducibility."""

from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from rrgkern import linear_token_logps
from rrgkern.logps import op
from rrgkern.logps.from_hidden import CSRC_TILES
from rrgkern.logps.head import BackwardRows, Head, NeedsGrad, Tiling, tiled_backward, tiled_forward
from rrgkern.logps.online_softmax import Coefficients
from tests.operators import Operators
from tests.products import first_of, more
from tests.rrgkern.device import DEVICE
from tests.rrgkern.logps.from_hidden_oracle import ours, problem

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")


@pytest.mark.parametrize(("entropy", "bias"), first_of([(True, True), (False, False)], 1))
def test_opcheck(entropy, bias):
    given = problem(3, 8, 40, bias=bias)
    hidden, weight = given.hidden.requires_grad_(), given.weight.requires_grad_()
    inputs = (hidden, weight, given.bias, given.targets)
    torch.library.opcheck(op.linear_token_logps_fwd, (*inputs, 0.7, 3.0, entropy, None))
    with torch.no_grad():
        stats = op.linear_token_logps_fwd(*inputs, 0.7, 3.0, entropy, None)
    coefs = (given.coef, given.coef_entropy if entropy else None)
    detached = [x if x is None else x.detach() for x in inputs]
    for wanted in ((True, True, bias), (True, False, False)):
        torch.library.opcheck(
            op.linear_token_logps_bwd, (*coefs, *detached, *stats, 0.7, 3.0, *wanted)
        )


@pytest.mark.parametrize("poison", [torch.nan, *more(torch.inf)])
def test_rows_without_coefficient_change_nothing(kernel, poison):
    given = problem(12, 16, 300, bias=True)
    masked = (given.coef == 0) & (given.coef_entropy == 0)
    clean = ours(given)
    hidden = given.hidden.clone()
    hidden[masked] = poison
    dirty = ours(given._replace(hidden=hidden))
    assert masked.any() and (dirty.hidden[masked] == 0).all()
    assert torch.equal(dirty.logps[~masked], clean.logps[~masked])
    for name in ("hidden", "weight", "bias"):
        assert torch.equal(getattr(dirty, name), getattr(clean, name))


@pytest.mark.parametrize("rows", [0, 4])
def test_no_active_row_gives_zero_gradients(kernel, rows):
    given = problem(rows, 8, 30, torch.bfloat16, bias=True)
    given.coef.zero_(), given.coef_entropy.zero_()
    outcome = ours(given)
    assert outcome.logps.shape == (rows,)
    assert all((gradient == 0).all() for gradient in outcome[2:])


def test_gradients_only_where_required(torch_kernel):
    given = problem(6, 8, 50, bias=True)
    hidden = given.hidden.requires_grad_()
    linear_token_logps(hidden, given.weight, given.targets, bias=given.bias).logps.sum().backward()
    assert hidden.grad.any() and given.weight.grad is None and given.bias.grad is None
    frozen = linear_token_logps(hidden.detach(), given.weight, given.targets)
    assert not frozen.logps.requires_grad


def test_expanded_strided_and_many_dimensional_inputs(torch_kernel):
    given = problem(24, 8, 50)
    wide = torch.randn(4, 7, 16, device=DEVICE)
    hidden = wide[:, :-1, ::2].requires_grad_()
    weight = given.weight.T.contiguous().T
    targets = given.targets.view(4, 6)
    out = linear_token_logps(hidden, weight, targets, entropy=True)
    assert out.logps.shape == out.entropy.shape == (4, 6)
    (gradient,) = torch.autograd.grad(out.logps.sum(), hidden)
    flat = hidden.detach().reshape(24, 8).clone().requires_grad_()
    logits = flat @ given.weight.T
    (expected,) = torch.autograd.grad(
        torch.log_softmax(logits, 1).gather(1, targets.view(-1, 1)).sum(), flat
    )
    torch.testing.assert_close(gradient.reshape(24, 8), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"weight": torch.ones(20, 8, dtype=torch.bfloat16)}, TypeError, "weight.to"),
        ({"targets": torch.ones(4, dtype=torch.int64)}, ValueError, r"targets is \[4\]"),
        ({"weight": torch.ones(0, 8)}, ValueError, "at least 1"),
        ({"bias": torch.ones(19)}, ValueError, r"\[19\], wanted \[20\]"),
        ({"temperature": -1.0}, ValueError, "temperature is -1.0"),
        ({"softcap": 0.0}, ValueError, "softcap is 0.0"),
    ],
)
def test_refusals_say_what_was_seen(change, error, words):
    arguments = {
        "hidden": torch.ones(3, 8),
        "weight": torch.ones(20, 8),
        "targets": torch.zeros(3, dtype=torch.int64),
    } | change
    with pytest.raises(error, match=words):
        linear_token_logps(**arguments)


# Test the cost: no [N, V], no product for rows or operands without a gradient.
on_cpu = pytest.mark.skipif(DEVICE != "cpu", reason="counts what serves CPUs")

ROWS, WIDTH, VOCABULARY = 60, 16, 900
TILING = Tiling(columns=128, elements=128 * 8)
TILES = CSRC_TILES._replace(tiling=TILING)


def storages(_, args, result):
    """Bytes of the storage of each tensor that an operation returned."""
    return [x.untyped_storage().nbytes() for x in tree_leaves(result) if torch.is_tensor(x)]


def forward_and_backward(given, wanted=(True, True, False), coef_entropy=True):
    head = Head(given.weight, given.bias, 1.0, 0.0, operands=torch.float32)
    stats = tiled_forward(given.hidden, given.targets, head, True, TILES)
    coefficients = Coefficients(given.coef, given.coef_entropy if coef_entropy else None)
    rows = BackwardRows(given.hidden, given.targets, stats, coefficients)
    with FlopCounterMode(display=False) as flops:
        tiled_backward(rows, head, NeedsGrad(*wanted), TILES)
    return flops.get_total_flops()


@on_cpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_logits_are_never_held(dtype):
    given = problem(ROWS, WIDTH, VOCABULARY, dtype)
    given.coef.fill_(1.0)
    with Operators(storages) as made:
        forward_and_backward(given)
    weight = given.weight.untyped_storage().nbytes()
    assert TILING.elements * 4 <= max(made.noted) <= weight < ROWS * VOCABULARY * 4


@on_cpu
def test_only_rows_with_a_coefficient_are_multiplied():
    given = problem(ROWS, WIDTH, VOCABULARY)
    given.coef.zero_(), given.coef_entropy.zero_()
    given.coef[[3, 30]] = 1.0
    given.coef_entropy[[30, 41, 59]] = -0.5
    product = 2 * WIDTH * VOCABULARY
    assert forward_and_backward(given) == 3 * 4 * product
    assert forward_and_backward(given, coef_entropy=False) == 3 * 2 * product
    given.coef.zero_()
    assert forward_and_backward(given, coef_entropy=False) == 0


@on_cpu
def test_a_frozen_operand_costs_no_product():
    given = problem(ROWS, WIDTH, VOCABULARY)
    given.coef.fill_(1.0)
    product = 2 * ROWS * WIDTH * VOCABULARY
    assert forward_and_backward(given, wanted=(True, False, False)) == 2 * product
    assert forward_and_backward(given, wanted=(False, True, False)) == 2 * product
