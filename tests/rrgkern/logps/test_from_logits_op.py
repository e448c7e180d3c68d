"""The op as PyTorch sees it: registration, autograd, compilation, refusals, reproducibility."""

from __future__ import annotations

import pytest
import torch

from rrgkern import token_logps
from rrgkern.logps import op, triton_from_logits
from tests.products import more
from tests.rrgkern.aot.mutated import passes
from tests.rrgkern.device import DEVICE
from tests.rrgkern.logps.from_logits_oracle import Outcome, check, problem
from tests.rrgkern.logps.test_from_logits_accuracy import compiled_cpu, through_op

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")


@pytest.mark.parametrize("entropy", [True, *more(False)])
@pytest.mark.parametrize("shape", [(2, 3, 17), *more((5, 17))])
def test_opcheck_forward(shape, entropy):
    given = problem(*shape)
    logits = given.logits[..., ::2] if len(shape) == 3 else given.logits
    targets = given.targets.reshape(-1) // 2
    torch.library.opcheck(
        op.token_logps_fwd, (logits.detach().requires_grad_(), targets, 0.7, entropy, None)
    )


@pytest.mark.parametrize("entropy", [True, *more(False)])
def test_opcheck_backward_and_in_place(entropy):
    given = problem(5, 17)
    stats = op.token_logps_fwd(given.logits, given.targets, 0.7, entropy, None)
    rest = (given.targets, *stats, 0.7)
    coef = (given.coef, given.coef_entropy if entropy else None)
    torch.library.opcheck(op.token_logps_bwd, (*coef, given.logits, *rest))
    torch.library.opcheck(op.token_logps_bwd_, (*coef, given.logits.clone(), *rest))


@pytest.mark.parametrize("layout", ["plain", "shifted", "every other", "transposed"])
def test_in_place_gives_the_same_bits(layout):
    given = problem(2, 3, 40)
    wide = problem(2, 4, 80, seed=5).logits
    logits = {
        "plain": given.logits.view(6, 40),
        "shifted": wide[:, :-1, :40],
        "every other": wide[:, 1:, ::2],
        "transposed": given.logits.view(6, 40).t().contiguous().t(),
    }[layout]
    targets, coef, bonus = (
        part.reshape(-1) for part in (given.targets, given.coef, given.coef_entropy)
    )
    stats = op.token_logps_fwd(logits, targets, 0.7, True, None)
    rest = (coef, bonus, logits, targets, *stats, 0.7)
    expected = op.token_logps_bwd(*rest)
    version = logits._version
    op.token_logps_bwd_(*rest)
    assert torch.equal(logits, expected) and logits._version > version


def test_gradcheck_through_the_op():
    given = problem(2, 5, dtype=torch.float64, seed=1)
    assert torch.autograd.gradcheck(
        lambda z: token_logps(z, given.targets, temperature=0.7, entropy=True),
        (given.logits.requires_grad_(),),
    )


@pytest.mark.parametrize("kernel", [through_op, compiled_cpu])
@pytest.mark.parametrize("poison", [torch.nan, *more(torch.inf, -torch.inf)])
def test_rows_without_coefficient_change_nothing(kernel, poison):
    given = problem(9, 400)
    masked = (given.coef == 0) & (given.coef_entropy == 0)
    clean = kernel(given, True)
    poisoned = given.logits.clone()
    poisoned[masked] = poison
    dirty = kernel(given._replace(logits=poisoned), True)
    assert masked.any() and (dirty.gradient[masked] == 0).all()
    assert torch.equal(dirty.gradient, clean.gradient)
    assert torch.equal(dirty.logps[~masked], clean.logps[~masked])
    assert torch.equal(dirty.entropy[~masked], clean.entropy[~masked])


@pytest.mark.parametrize("kernel", [through_op, compiled_cpu])
def test_all_rows_masked_and_no_rows(kernel):
    given = problem(5, 30)
    given = given._replace(coef=given.coef * 0, coef_entropy=given.coef_entropy * 0)
    assert (kernel(given, True).gradient == 0).all()
    for shape in ((0, 30), (0, 4, 30), (4, 0, 30)):
        outcome = kernel(problem(*shape), True)
        assert outcome.logps.shape == shape[:-1] and outcome.gradient.shape == shape


def test_one_gradient_at_a_time_and_expanded_gradients():
    given = problem(6, 50)
    logits = given.logits.detach().requires_grad_()
    for name in ("logps", "entropy"):
        out = token_logps(logits, given.targets, entropy=True)
        (expanded,) = torch.autograd.grad(getattr(out, name).sum(), logits, retain_graph=True)
        ones = torch.ones_like(out.logps)
        (dense,) = torch.autograd.grad(getattr(out, name), logits, ones)
        assert torch.equal(expanded, dense) and expanded.any()


def test_entropy_not_asked_for_is_none():
    given = problem(3, 8)
    out = token_logps(given.logits, given.targets)
    assert out.entropy is None and out.logps.dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"targets": torch.ones(3, dtype=torch.int32)}, TypeError, "int64"),
        ({"targets": torch.ones(4, dtype=torch.int64)}, ValueError, r"\[3, 8\]"),
        ({"logits": torch.ones(3, 0)}, ValueError, r"\[3, 0\]"),
        ({"temperature": 0.0}, ValueError, "temperature is 0.0"),
        ({"temperature": 1e-31}, ValueError, "temperature is 1e-31, .* 1e-30 to 1e[+]30"),
    ],
)
def test_refusals_say_what_was_seen(change, error, words):
    arguments = {"logits": torch.ones(3, 8), "targets": torch.zeros(3, dtype=torch.int64)} | change
    with pytest.raises(error, match=words):
        token_logps(**arguments)


# Offsets past 2^31 elements, and launches that must share one compiled kernel.
# On a GPU each takes up to 8 GiB, and a process keeps what it has taken: one of them takes all.

# Three rows this far apart: the third begins 2^31 elements after the first.
FAR_APART = 2**30


def check_far_logits(layout: str) -> None:
    """Raise unless both kernels are right where the last row, or column, is far away."""
    given = problem(3, 3 if layout == "columns" else 40, dtype=torch.bfloat16)
    storage = torch.empty(2 * FAR_APART + 40, dtype=torch.bfloat16, device=DEVICE)
    of_columns, of_rows = ((3, 3), (1, FAR_APART)), ((3, 40), (FAR_APART, 1))
    logits = storage.as_strided(*(of_columns if layout == "columns" else of_rows))
    logits.copy_(given.logits)
    walked = logits[:, None] if layout == "batches" else logits
    arguments = (given.targets, given.temperature)
    stats = triton_from_logits.token_logps_fwd(walked, *arguments, True)
    rest = (given.coef, given.coef_entropy, walked, given.targets, *stats, given.temperature)
    gradient = triton_from_logits.token_logps_bwd(*rest)
    check(Outcome(stats[0], stats[1], gradient.view(given.logits.shape)), given)
    triton_from_logits.token_logps_bwd_(*rest)
    assert torch.equal(logits, gradient.view(given.logits.shape))


@pytest.mark.xdist_group("gigabytes")
@pytest.mark.parametrize("layout", ["rows", "columns", "batches"])
def test_logits_past_two_to_the_31(layout):
    check_far_logits(layout)


@pytest.mark.xdist_group("gigabytes")
@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.skipif(DEVICE != "cpu", reason="a wild address ends the CUDA context")
@pytest.mark.parametrize(
    ("module", "wide"),
    [
        (triton_from_logits, "row = tl.program_id(0).to(tl.int64)"),
        (triton_from_logits, "row = (tl.program_id(0) // BLOCKS).to(tl.int64)"),
    ],
)
def test_without_64_bits_the_far_row_is_missed(module, wide):
    narrow = wide.replace(".to(tl.int64)", "")
    assert not passes(module, wide, narrow, f"{__name__}.check_far_logits", "rows")
