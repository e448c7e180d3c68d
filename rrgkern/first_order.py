"""Let a gradient that is differentiated raise, whatever the upstream gradient is.

The backwards here have no derivative of their own. PyTorch's `once_differentiable` notices only
where the upstream gradient requires a gradient, which that of a loss does not: a penalty on the
gradient, added to the loss, would be left out. So under `create_graph` each gradient gets a node of
its own that leads to the inputs and raises.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

Backward = Callable[..., tuple[Tensor | None, ...]]


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
            # A compiled backward refuses create_graph itself.
            if not torch.is_grad_enabled() or torch.compiler.is_compiling():
                return backward(ctx, *upstream)
            if not hasattr(ctx, "sources"):
                ctx = _Unpacked(ctx)
            sources = [*ctx.sources, *upstream]
            with torch.no_grad():
                results = backward(ctx, *upstream)
            places = [at for at, result in enumerate(results) if isinstance(result, Tensor)]
            linked = [x for x in sources if isinstance(x, Tensor) and x.requires_grad]
            refusing = _Refusing.apply(name, len(places), *(results[at] for at in places), *linked)
            by_place = dict(zip(places, refusing, strict=True))
            return tuple(by_place.get(at, result) for at, result in enumerate(results))

        return served

    return decorate


def link(tensor: Tensor | None) -> Tensor | None:
    """Return an empty tensor that leads to `tensor` in the graph.

    It keeps no memory of it. None where no gradient flows, and under torch.compile.
    """
    if tensor is None or not tensor.requires_grad or torch.compiler.is_compiling():
        return None
    with torch.enable_grad():
        return tensor[:0].clone()


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
            f"a gradient of {ctx.name} made with create_graph=True is differentiated, and rrgkern "
            "serves first derivatives only: detach() that gradient, or compose the function of "
            "PyTorch's operations where a second derivative is wanted"
        )
