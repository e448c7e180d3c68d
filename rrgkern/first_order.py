"""Let a gradient that is differentiated raise, whatever the upstream gradient is.

The backwards here have no derivative of their own. PyTorch's `once_differentiable` notices only
where the upstream gradient requires a gradient, which that of a loss does not: a penalty on the
gradient, added to the loss, would be left out. So under `create_graph` each gradient gets a node of
its own that leads to the inputs and raises. Where no such node can be had, of a batched gradient
and in a compiled backward, the gradient itself is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

Backward = Callable[..., tuple[Tensor | None, ...]]
INSTEAD = (
    "and rrgkern serves first derivatives only: {}, or compose the function of PyTorch's "
    "operations where a second derivative is wanted"
)


def first_order(name: str) -> Callable[[Backward], Backward]:
    """Make the results of a backward raise where they are differentiated.

    `backward(ctx, *upstream)` runs without a graph. It may set `ctx.sources`, tensors that lead to
    the differentiable inputs; else these are among its saved tensors.

    Args:
        name: the function to be named in the message.
    """

    def decorate(backward: Backward) -> Backward:
        @functools.wraps(backward)
        def served(ctx: Any, *upstream: Any) -> tuple[Tensor | None, ...]:
            if torch.compiler.is_compiling():
                # Only a run of the graph knows of create_graph, and tracing has no grad mode.
                watched = (x if x is None else first_order_upstream(x, name) for x in upstream)
                return backward(ctx, *watched)
            if not torch.is_grad_enabled():
                return backward(ctx, *upstream)
            if not hasattr(ctx, "sources"):
                ctx = _Unpacked(ctx)
            sources = [*ctx.sources, *upstream]
            if any(isinstance(x, Tensor) and _is_batched(x) for x in sources):
                raise NotImplementedError(
                    f"a batched gradient of {name} is made with create_graph=True, "
                    + INSTEAD.format("leave create_graph False")
                )
            with torch.no_grad():
                results = backward(ctx, *upstream)
            places = [at for at, result in enumerate(results) if isinstance(result, Tensor)]
            linked = [x for x in sources if isinstance(x, Tensor) and x.requires_grad]
            refusing = _Refusing.apply(name, len(places), *(results[at] for at in places), *linked)
            by_place = dict(zip(places, refusing, strict=True))
            return tuple(by_place.get(at, result) for at, result in enumerate(results))

        return served

    return decorate


def made_already(name: str) -> Callable[..., Tensor]:
    """Make the autograd function of a loss that comes with its coefficients.

    It is called with logps, entropy or None, and (loss, coef, coef_entropy or None); the backward
    multiplies the coefficients by the upstream gradient.
    """

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any,
            logps: Tensor,
            entropy: Tensor | None,
            outputs: tuple[Tensor, Tensor, Tensor | None],
        ) -> Tensor:
            ctx.materialize_grads = False
            loss, coef, coef_entropy = outputs
            ctx.save_for_backward(coef, coef_entropy)
            ctx.sources = logps, entropy
            return loss

        @staticmethod
        @first_order(name)
        def backward(ctx: Any, grad_loss: Tensor | None) -> tuple[Tensor | None, ...]:
            if grad_loss is None:
                return None, None, None
            coef, coef_entropy = ctx.saved_tensors
            entropy = None if coef_entropy is None else coef_entropy * grad_loss
            return coef * grad_loss, entropy, None

    # Without the wrapper in Python, which is there for functorch: that gets the op (`direct`).
    apply: Callable[..., Tensor] = super(torch.autograd.Function, Scaled).apply
    return apply


def link(tensor: Tensor | None) -> Tensor | None:
    """Return an empty tensor that leads to `tensor` in the graph.

    It keeps no memory of it. None where no gradient flows, and under torch.compile.
    """
    if tensor is None or not tensor.requires_grad or torch.compiler.is_compiling():
        return None
    with torch.enable_grad():
        return tensor.narrow_copy(0, 0, 0)


class _Unpacked:
    """A context whose saved tensors are unpacked once: under checkpointing a second time raises."""

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx
        self.saved_tensors = self.sources = ctx.saved_tensors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


class _Refusing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.name = name
        return tensors[:count]

    @staticmethod
    def backward(ctx: Any, *_: Any) -> NoReturn:
        raise NotImplementedError(
            f"a gradient of {ctx.name} made with create_graph=True is differentiated, "
            + INSTEAD.format("detach() that gradient")
        )


def _is_batched(tensor: Tensor) -> bool:
    """True under `is_grads_batched`, which `jacobian(vectorize=True)` uses, and torch.vmap."""
    functorch = torch._C._functorch
    return functorch.is_legacy_batchedtensor(tensor) or functorch.is_batchedtensor(tensor)


# AOTAutograd links a gradient to tensors that it saved and that require one, the inputs seldom
# among them: `torch.autograd.grad` then goes past the node that would raise.
@torch.library.custom_op("rrgkern::first_order_upstream", mutates_args=())
def first_order_upstream(upstream: Tensor, name: str) -> Tensor:
    """Copy an upstream gradient of a compiled backward; raise where that runs with create_graph.

    Replays of a CUDA graph do not come by here.
    """
    if _makes_a_graph():
        raise NotImplementedError(
            f"a gradient of {name} under torch.compile is made with create_graph=True, "
            + INSTEAD.format("leave create_graph False")
        )
    return upstream.clone()


@first_order_upstream.register_fake
def _(upstream: Tensor, name: str) -> Tensor:
    return torch.empty_like(upstream)


def _makes_a_graph() -> bool:
    """True in a compiled backward under create_graph.

    AOTAutograd then runs it in the forward of a Function of its own, where forward mode is off; or
    without, and grad mode tells. In the forward of a caller's Function forward mode is off as well,
    but no graph is kept there.
    """
    if torch._C._current_graph_task_id() == -1:
        return False
    if torch.is_grad_enabled():
        return True
    keeps_graph: bool = torch._C._autograd._get_current_graph_task_keep_graph()
    return keeps_graph and not torch._C._is_fwd_grad_enabled()
