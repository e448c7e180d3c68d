"""Merge the products of one input while tokens are decoded: q, k and v are then one kernel."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

Layers = list[nn.Linear]


@contextmanager
def noted(model: nn.Module, tokens: tuple[int, ...]) -> Iterator[list[Layers]]:
    """Group the linear layers that are called inside by their very input, [*tokens, width].

    No layer's name is read. Experts, which are given a choice of the tokens, are in no group.
    """
    groups: list[Layers] = []
    by_input: Any = WeakIdKeyDictionary()  # activations of a whole prefill are not held

    def note(layer: Any, args: Any) -> None:
        if args and args[0].shape[:-1] == tokens:
            if args[0] not in by_input:
                groups.append(by_input.setdefault(args[0], []))
            by_input[args[0]].append(layer)

    linear = [module for module in model.modules() if type(module) is nn.Linear]
    handles = [layer.register_forward_pre_hook(note) for layer in linear]
    try:
        yield groups
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
@torch.no_grad()
def merged(groups: list[Layers]) -> Iterator[None]:
    """Compute each group by one product inside, its parameters being views of one tensor.

    They stay the same parameters: a change in place acts at once, and a file takes each once.
    Behind it they have memory of their own again. FSDP2's parts are left alone.
    """
    calls = Counter(chain(*groups))
    products: list[_Product] = []
    try:
        for group in groups:
            alike: defaultdict[Any, Layers] = defaultdict(list)
            for layer in group:
                weight, own_forward = layer.weight, "forward" not in vars(layer)
                if calls[layer] == 1 and own_forward and type(weight.data) is Tensor:
                    alike[weight.dtype, weight.device, layer.bias is None].append(layer)
            products += [_Product(layers) for layers in alike.values() if len(layers) > 1]
        yield
    finally:
        for product in products:
            product.undo()


class _Product:
    """Compute the products of one input together, whichever is asked for first."""

    def __init__(self, layers: Layers) -> None:
        self.layers, self.sizes = layers, [layer.out_features for layer in layers]
        self.weight = self._joined([layer.weight for layer in layers])
        biases: Any = [layer.bias for layer in layers]
        self.bias = None if biases[0] is None else self._joined(biases)
        self.input: Tensor | None = None
        self.results: tuple[Tensor, ...] = ()
        for i, layer in enumerate(layers):
            layer.forward = partial(self.result, i)  # type: ignore[method-assign]

    def _joined(self, parameters: list[nn.Parameter]) -> nn.Parameter:
        # a parameter, whose sizes are constants to a compiler
        whole = nn.Parameter(torch.cat([p.data for p in parameters]), requires_grad=False)
        for parameter, part in zip(parameters, whole.data.split(self.sizes), strict=True):
            parameter.data = part
        return whole

    def result(self, i: int, states: Tensor) -> Tensor:
        """Return the product of layer `i`; those of the others wait for their calls."""
        if self.input is not states:
            results = F.linear(states, self.weight, self.bias)
            self.input, self.results = states, results.split(self.sizes, -1)
        out = self.results[i]
        if i == len(self.sizes) - 1:  # a graph would return what is still held
            self.input, self.results = None, ()
        return out

    def undo(self) -> None:
        for layer in self.layers:
            del layer.forward
            for parameter in layer.parameters(recurse=False):
                parameter.data = parameter.data.clone()
