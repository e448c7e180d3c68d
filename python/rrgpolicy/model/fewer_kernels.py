"""Decode with fewer kernels: products of one input merged, and steps compiled (torch.compile).

No GPU has run either; on a CPU compiling takes minutes.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor import compile_fx
from torch.fx.experimental import _config as shapes
from torch.utils.weak import WeakIdKeyDictionary

from rrgclinical.common.errors import cause_line
from rrgpolicy.model.adapters import is_lora, low_rank

Layers = list[Any]
OPTIONS = {"combo_kernels": True}
"""Of inductor: work of one kind that waits for nothing else is one kernel."""


@contextmanager
def noted(model: nn.Module, tokens: tuple[int, ...]) -> Iterator[list[Layers]]:
    """Group the linear layers and LoRAs called inside by their very input, [*tokens, width].

    No layer's name is read. Experts, which are given a choice of the tokens, are in no group.
    """
    groups: list[Layers] = []
    by_input: Any = WeakIdKeyDictionary()  # activations of a whole prefill are not held

    def note(layer: Any, args: Any) -> None:
        if args and args[0].shape[:-1] == tokens:
            if args[0] not in by_input:
                groups.append(by_input.setdefault(args[0], []))
            by_input[args[0]].append(layer)

    layers: Layers = [m for m in model.modules() if type(m) is nn.Linear or is_lora(m)]
    handles = [layer.register_forward_pre_hook(note) for layer in layers]
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
        for make in (_LowRank, _Product):  # the A of a LoRA is in no product of linear layers then
            for group in groups:
                alike: defaultdict[Any, Layers] = defaultdict(list)
                for layer in group:
                    if calls[layer] == 1 and "forward" not in vars(layer):
                        alike[make.kind(layer)].append(layer)
                several = (k for k, layers in alike.items() if k and len(layers) > 1)
                products += (make(alike[kind]) for kind in several)
        yield
    finally:
        while products:  # each frees its tensor before the next layers have their own again
            products.pop().undo()


class _Product:
    """Compute the products of one input together, whichever is asked for first."""

    @staticmethod
    def kind(layer: Any) -> Any:
        """Return what layers of one product have in common, None of others."""
        if type(layer) is not nn.Linear or type(layer.weight.data) is not Tensor:
            return None
        return layer.weight.dtype, layer.weight.device, layer.bias is None

    def __init__(self, layers: Layers) -> None:
        self.layers, self.sizes = layers, [layer.out_features for layer in layers]
        self.input: Tensor | None = None
        self.results: tuple[Tensor, ...] = ()
        self.join()
        for i, layer in enumerate(layers):
            layer.forward = self._forward(i)

    def join(self) -> None:
        self.weight = self._joined([layer.weight for layer in self.layers])
        biases = [layer.bias for layer in self.layers]
        self.bias = None if biases[0] is None else self._joined(biases)

    def _forward(self, i: int) -> Callable[[Tensor], Tensor]:
        # a compiler knows a function by its code, and other callables by what they are
        return lambda states: self.result(i, states)

    def _joined(self, parameters: list[Any]) -> nn.Parameter:
        # a parameter, whose sizes are constants to a compiler
        whole = nn.Parameter(torch.cat([p.data for p in parameters]), requires_grad=False)
        for parameter, part in zip(parameters, whole.data.split(self.sizes), strict=True):
            parameter.data = part
        return whole

    def result(self, i: int, states: Tensor) -> Tensor:
        """Return the product of layer `i`; those of the others wait for their calls."""
        if self.input is not states:
            self.input, self.results = states, self.product(states).split(self.sizes, -1)
        out = self.results[i]
        if i == len(self.sizes) - 1:  # a graph would return what is still held
            self.input, self.results = None, ()
        return out

    def product(self, states: Tensor) -> Tensor:
        return F.linear(states, self.weight, self.bias)

    def undo(self) -> None:
        for layer in self.layers:
            del layer.forward
            for parameter in layer.parameters(recurse=False):
                parameter.data = parameter.data.clone()


class _LowRank(_Product):
    """Compute LoRAs of one input: all A as one product, all B as another.

    The B lie on a diagonal, copied: no report is drawn while a step changes weights.
    """

    @staticmethod
    def kind(layer: Any) -> Any:
        kinds = {_Product.kind(part) for part in low_rank(layer)[:2]}
        return kinds.pop() if len(kinds) == 1 else None

    def join(self) -> None:
        first, last, self.scales = zip(*map(low_rank, self.layers), strict=True)
        self.diagonal = nn.Parameter(torch.block_diag(*(b.weight for b in last)), False)
        self.first = _Product([*first])

    def result(self, i: int, states: Tensor) -> Tensor:
        out: Tensor = self.layers[i].base_layer(states)
        return (out + super().result(i, states) * self.scales[i]).to(out.dtype)

    def product(self, states: Tensor) -> Tensor:
        return F.linear(self.first.product(states.to(self.first.weight.dtype)), self.diagonal)

    def undo(self) -> None:
        super().undo()
        self.first.undo()


def with_sums(graph: Any) -> Any:
    """Write a graph's convolutions over a state and a token as sums, which fuse."""
    for node in graph.graph.nodes:
        node.target = convolved if node.target is torch.conv1d else node.target
    graph.recompile()
    return graph


def convolved(states: Tensor, weight: Tensor, bias: Any = None, *more: Any, **named: Any) -> Tensor:
    """Convolve as `torch.conv1d`, by sums where channels are alone and windows are few."""
    channels, _, width = weight.shape
    few = states.shape[1:-1] == (channels,) and width <= states.shape[-1] < 2 * width
    if not few or more or {"padding": 0, **named} != {"padding": 0, "groups": channels}:
        return torch.conv1d(states, weight, bias, *more, **named)
    wide = torch.promote_types(states.dtype, torch.float32)
    out = (states.unfold(-1, width, 1).to(wide) * weight.to(wide)).sum(-1)
    return (out if bias is None else out + bias.to(wide)[:, None]).to(states.dtype)


class CompiledStep:
    """Call a method, compiled once for all sizes from two on; `on` until that fails.

    It counts `compilations` and their `seconds`.
    """

    def __init__(self) -> None:
        self.on, self.compilations, self.seconds = True, 0, 0.0
        self._functions: dict[Any, Any] = {}

    def __call__(self, method: Any, tensor: Tensor) -> Tensor:
        """Return what the method returns for the tensor."""
        tensor = tensor.clone() if tensor._is_view() else tensor  # it would be compiled anew
        of, before, begin = method.__func__, self.compilations, time.perf_counter()
        failures = torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.FailOnRecompileLimitHit
        if of not in self._functions:
            options: Any = {"fullgraph": True, "dynamic": True, "backend": self._backend}
            self._functions[of] = torch.compile(of, **options)
        try:
            # sizes that are equal by chance would be taken for one
            with shapes.patch(use_duck_shape=False):  # type: ignore[attr-defined]
                out: Tensor = self._functions[of](method.__self__, tensor)
        except failures as error:
            self.give_up(cause_line(error.__cause__ or error))
            return method(tensor)
        if self.compilations > before:
            self.seconds += time.perf_counter() - begin
        return out

    def give_up(self, why: str) -> None:
        """Run steps as they are from now on, and say so once."""
        if self.on:
            line = f"a step of decoding cannot be compiled ({why}): it runs as it is, slower"
            warnings.warn(line, stacklevel=2)
        self.on = False

    def _backend(self, graph: Any, inputs: Any) -> Any:
        self.compilations += 1
        return compile_fx.compile_fx(with_sums(graph), inputs, config_patches=OPTIONS)
