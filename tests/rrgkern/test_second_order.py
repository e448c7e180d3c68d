"""A derivative that is not served raises one line of ours, and is never left out of a gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import rrgkern
from rrgkern import PolicyLoss
from tests.products import more
from tests.rrgkern.backends import serve
from tests.rrgkern.device import DEVICE

ROWS, WIDTH, VOCABULARY = 5, 3, 7
OFFSETS = torch.tensor([0, 2, 5], device=DEVICE)
TARGETS = torch.tensor([1, 0, 6, 3, 2], device=DEVICE)
SCALE = torch.full((2,), 0.2, device=DEVICE)
ADVANTAGES = torch.tensor([1.0, -0.5], device=DEVICE)
PAIRS = rrgkern.PreferencePairs(
    torch.tensor([0], device=DEVICE), torch.tensor([1], device=DEVICE), torch.ones(1, device=DEVICE)
)
REST = {"advantages": ADVANTAGES, "offsets": OFFSETS, "scale": SCALE}
BONUS, TIED = PolicyLoss(entropy_coef=0.1), PolicyLoss(ratio_level="sequence")
NO_BONUS = PolicyLoss()


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(5))


def leaf(*shape: int) -> Tensor:
    return drawn(*shape).requires_grad_()


def _linear(mode: str, spec: PolicyLoss) -> Callable[..., Tensor]:
    def loss(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if mode == "frozen_head":
            weight, bias = weight.detach(), bias.detach()
        head = {"bias": bias, "spec": spec, "mode": mode}
        return rrgkern.linear_policy_loss(hidden, weight, TARGETS, **REST, **head).loss

    return loss


def _of_logits(inplace: bool, spec: PolicyLoss) -> Callable[..., Tensor]:
    def loss(logits: Tensor) -> Tensor:
        # In place wants logits that are no leaf.
        return rrgkern.policy_loss_from_logits(
            logits * 1, TARGETS, **REST, spec=spec, inplace=inplace
        ).loss

    return loss


def _head_logps(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    logps, entropy = rrgkern.linear_token_logps(hidden, weight, TARGETS, bias=bias, entropy=True)
    return (logps + entropy).sum()


LOGITS, LOGPS = ((ROWS, VOCABULARY),), ((ROWS,),)
HEAD = ((ROWS, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,))
# Each public function with a backward of ours, in each of its ways: a scalar of its differentiable
# inputs, and their shapes.
DOORS: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "token_logps": (lambda z: rrgkern.token_logps(z, TARGETS).logps.sum(), LOGITS),
    "token_logps, entropy": (
        lambda z: rrgkern.token_logps(z, TARGETS, entropy=True).entropy.sum(),
        LOGITS,
    ),
    "linear_token_logps": (_head_logps, HEAD),
    "policy_loss": (lambda x: rrgkern.policy_loss(x, **REST).loss, LOGPS),
    # Converted first, so that the extension is not called directly.
    "policy_loss, strided": (
        lambda x: rrgkern.policy_loss(x.repeat_interleave(2)[::2], **REST).loss,
        LOGPS,
    ),
    "policy_loss, entropy": (
        lambda x, h: rrgkern.policy_loss(x, **REST, entropy=h, spec=BONUS).loss,
        LOGPS * 2,
    ),
    "from logits, one pass": (_of_logits(False, NO_BONUS), LOGITS),
    "from logits, one pass in place": (_of_logits(True, NO_BONUS), LOGITS),
    "from logits, composed": (_of_logits(False, TIED), LOGITS),
    "from logits, composed in place": (_of_logits(True, TIED), LOGITS),
    "linear, recompute": (_linear("recompute", NO_BONUS), HEAD),
    "linear, grad_in_forward": (_linear("grad_in_forward", BONUS), HEAD),
    "linear, frozen_head": (_linear("frozen_head", NO_BONUS), HEAD),
    "preference_loss": (
        lambda x: rrgkern.preference_loss(x, -torch.ones_like(x), OFFSETS, PAIRS).loss,
        LOGPS,
    ),
    "preference_loss, strided": (
        lambda x: (
            rrgkern.preference_loss(
                x.repeat_interleave(2)[::2], -torch.ones_like(x), OFFSETS, PAIRS
            ).loss
        ),
        LOGPS,
    ),
}
COMPILED = {"token_logps", "policy_loss", "linear, frozen_head"}
REFUSED = "and rrgkern serves first derivatives only: "


def _penalty(loss: Tensor, wrt: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(loss, wrt, create_graph=True)
    return loss + 0.5 * gradient.pow(2).sum()


def _added(f: Callable[..., Tensor], inputs: list[Tensor], at: int) -> object:
    return _penalty(f(*inputs), inputs[at]).backward()


def _hessian_vector(f: Callable[..., Tensor], inputs: list[Tensor], at: int) -> object:
    (gradient,) = torch.autograd.grad(f(*inputs), inputs[at], create_graph=True)
    return torch.autograd.grad(gradient, inputs[at], torch.ones_like(gradient), allow_unused=True)


def _by_the_upstream(f: Callable[..., Tensor], inputs: list[Tensor], at: int) -> object:
    factor = torch.ones((), device=DEVICE, requires_grad=True)
    loss = f(*inputs) * factor
    (gradient,) = torch.autograd.grad(loss, inputs[at], create_graph=True)
    return torch.autograd.grad(loss + gradient.sum(), factor)


def _hessian(f: Callable[..., Tensor], inputs: list[Tensor], at: int) -> object:
    def of_one(x: Tensor) -> Tensor:
        return f(*inputs[:at], x, *inputs[at + 1 :])

    return torch.autograd.functional.hessian(of_one, inputs[at].detach())


def _batched(f: Callable[..., Tensor], inputs: list[Tensor], at: int) -> object:
    loss = f(*inputs)
    (gradients,) = torch.autograd.grad(
        loss, inputs[at], torch.ones(2, device=DEVICE), is_grads_batched=True, create_graph=True
    )
    return torch.autograd.grad(loss + gradients.pow(2).sum(), inputs[at])


def _vectorized(f: Callable[..., Tensor], inputs: list[Tensor], at: int) -> object:
    def of_one(x: Tensor) -> Tensor:
        return f(*inputs[:at], x, *inputs[at + 1 :])

    gradient = torch.autograd.functional.jacobian(
        of_one, inputs[at], create_graph=True, vectorize=True
    )
    return torch.autograd.grad(f(*inputs) + gradient.pow(2).sum(), inputs[at])


def _checkpointed(f: Callable[..., Tensor], inputs: list[Tensor], at: int) -> object:
    def recomputed(*given: Tensor) -> Tensor:
        return checkpoint(f, *given, use_reentrant=False)

    return _added(recomputed, inputs, at)


WAYS = (
    *(_added, _hessian_vector, _by_the_upstream, _hessian, _checkpointed),
    *(_batched, _vectorized),
)


def said_by(call: Callable[[], object]) -> str:
    try:
        return f"returned {call()}"
    except NotImplementedError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("backend", ["extension", *more("reference", "as it is")])
def test_a_gradient_that_is_differentiated_raises(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend != "as it is" and DEVICE != "cpu":
        pytest.skip("serves CPUs")
    serve(monkeypatch, backend)
    # Triton's interpreter is slow, and the ways do not depend on the kernel.
    ways = WAYS if backend == "extension" else (*WAYS[:2], _batched, _vectorized)
    wrong = {}
    for name, (function, shapes) in DOORS.items():
        differentiated = shapes[:1] if "frozen" in name or backend == "as it is" else shapes
        for at in range(len(differentiated)):
            for way in ways:
                inputs = [leaf(*shape) for shape in shapes]
                said = said_by(partial(way, function, inputs, at))
                if REFUSED not in said or "\n" in said:
                    wrong[f"{name}, input {at}, {way.__name__}"] = said
    assert not wrong, "\n".join(f"{case}: {said}" for case, said in wrong.items())


def test_a_batched_gradient_without_a_graph_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, "extension" if DEVICE == "cpu" else "as it is")
    for name in ("token_logps", "policy_loss", "linear, recompute", "preference_loss"):
        function, shapes = DOORS[name]
        x, *others = (leaf(*shape) for shape in shapes)
        loss = function(x, *others)
        factors = torch.tensor([1.0, 2.0], device=DEVICE)
        (both,) = torch.autograd.grad(loss, x, factors, is_grads_batched=True, retain_graph=True)
        (one,) = torch.autograd.grad(loss, x)
        assert torch.allclose(both, torch.stack([one, 2 * one])) and one.any(), name


@pytest.mark.parametrize("name", [*sorted(COMPILED), *more(*sorted(DOORS.keys() - COMPILED))])
def test_a_compiled_gradient_with_a_graph_raises(name: str) -> None:
    """AOTAutograd's own refusal is passed by where `torch.autograd.grad` names the inputs."""
    function, shapes = DOORS[name]
    torch._dynamo.reset()
    inputs = [leaf(*shape) for shape in shapes]
    named = inputs[:1] if "frozen" in name else inputs
    loss = torch.compile(function, backend="aot_eager")(*inputs)
    for at in range(len(named)):
        said = said_by(lambda at=at: torch.autograd.grad(loss, inputs[at], create_graph=True))
        assert f"under torch.compile is made with create_graph=True, {REFUSED}" in said
        assert "\n" not in said
    # One that is kept for a second backward has no graph of its own, and is served.
    (once, again) = (torch.autograd.grad(loss, named, retain_graph=True) for _ in range(2))
    plain = [leaf(*shape) for shape in shapes]
    eager = torch.autograd.grad(function(*plain), plain[: len(named)])
    for first, second, right in zip(once, again, eager, strict=True):
        assert torch.equal(first, second) and torch.allclose(first, right) and right.any()


def test_a_compiled_gradient_within_a_function_is_served() -> None:
    """As of a loss in chunks, whose forward makes the gradient."""
    torch._dynamo.reset()
    function = DOORS["policy_loss"][0]
    compiled = torch.compile(function, backend="aot_eager")

    class Chunk(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                loss = compiled(x)
                ctx.save_for_backward(*torch.autograd.grad(loss, x))
            return loss.detach()

        @staticmethod
        def backward(ctx, upstream):
            return upstream * ctx.saved_tensors[0]

    x = leaf(ROWS)
    (gradient,) = torch.autograd.grad(Chunk.apply(x), x)
    (eager,) = torch.autograd.grad(function(x), x)
    assert torch.allclose(gradient, eager) and eager.any()


def test_a_graph_of_the_gradient_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing raises where a loss is scaled and a graph made, until that is differentiated."""
    if DEVICE == "cpu":
        serve(monkeypatch, "extension")
    for name, (function, shapes) in DOORS.items():
        results = []
        for create_graph in (False, True):
            inputs = [leaf(*shape) for shape in shapes]
            loss = 2 * function(*inputs)
            wanted = inputs[:1] if "frozen" in name else inputs
            found = torch.autograd.grad(loss, wanted, create_graph=create_graph)
            assert all(g.requires_grad == create_graph for g in found), name
            results.append([g.detach() for g in found])
        for plain, graphed in zip(*results, strict=True):
            assert torch.equal(plain, graphed) and plain.any(), name


def test_what_is_added_to_a_gradient_has_no_graph() -> None:
    hidden, weight = leaf(ROWS, WIDTH), leaf(VOCABULARY, WIDTH)
    out = rrgkern.linear_policy_loss(
        hidden, weight, TARGETS, **REST, mode="recompute", accumulate_weight_grad=True
    )
    with pytest.raises(NotImplementedError, match="added to weight.grad has no graph: leave acc"):
        out.loss.backward(create_graph=True)
    assert weight.grad is None


def test_gathered_rows_have_every_derivative() -> None:
    values = drawn(4, 2).double().requires_grad_()
    places = torch.tensor([3, 0, 3, 3, 2], device=DEVICE)
    assert torch.autograd.gradgradcheck(lambda x: rrgkern.gather_rows(x, places) ** 3, values)
