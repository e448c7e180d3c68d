"""An op's schema, made from a NamedTuple: its text, its checks, and the op in use."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from rrgkern.ops import custom_op, flatten, gradients, pack, schema


class Weights(NamedTuple):
    weight: Tensor
    mask: Tensor | None


class Inputs(NamedTuple):
    values: Tensor
    weights: Weights
    factor: float
    power: int
    floor: float | None
    signed: bool
    name: str


class Outputs(NamedTuple):
    total: Tensor
    slope: Tensor


class ToScale(NamedTuple):
    factor: float
    values: Tensor


@custom_op("rrgkern_test::weighted_power", Inputs)
def weighted_power(*inputs: Any) -> Outputs:
    """Sum and slope of factor * weight * values ** power."""
    x = pack(Inputs, inputs)
    weight = x.weights.weight * x.factor
    if x.weights.mask is not None:
        weight = weight * x.weights.mask
    slope = weight * x.power * x.values ** (x.power - 1)
    return Outputs((weight * x.values**x.power).sum(), slope)


@weighted_power.register_fake
def _(*inputs: Any) -> Outputs:
    values = pack(Inputs, inputs).values
    return Outputs(values.new_empty(()), torch.empty_like(values))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Outputs) -> None:
    ctx.save_for_backward(output[1])


def _backward(ctx: Any, coef: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return gradients(Inputs, values=coef * ctx.saved_tensors[0])


weighted_power.register_autograd(_backward, setup_context=_setup_context)


@custom_op("rrgkern_test::scale_", ToScale, mutates=("values",))
def scale_(*inputs: Any) -> None:
    """Multiply the values in place."""
    x = pack(ToScale, inputs)
    x.values.mul_(x.factor)


@weighted_power.register_kernel("cpu")
def _(*inputs: Any) -> Outputs:
    return weighted_power._init_fn(*inputs)


def inputs(mask: Tensor | None = None) -> Inputs:
    values = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
    weights = Weights(torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64), mask)
    return Inputs(values, weights, 2.0, 3, None, True, "cubes")


def test_the_schema_is_torchs_own_of_the_same_list():
    def same(
        values: Tensor,
        weight: Tensor,
        mask: Tensor | None,
        factor: float,
        power: int,
        floor: float | None,
        signed: bool,
        name: str,
    ) -> tuple[Tensor, Tensor]:
        raise AssertionError("only its signature is read")

    mutated = ("weight", "mask")
    assert schema(Inputs, Outputs) == torch.library.infer_schema(same, mutates_args=())
    assert schema(Inputs, Outputs, mutated) == torch.library.infer_schema(
        same, mutates_args=mutated
    )


@pytest.mark.parametrize(
    ("returns", "text"),
    [
        (Tensor, "Tensor"),
        (type(None), "()"),
        (tuple[Tensor, Tensor], "(Tensor, Tensor)"),
        (Outputs, "(Tensor, Tensor)"),
    ],
)
def test_results(returns, text):
    assert schema(ToScale, returns) == f"(float factor, Tensor values) -> {text}"


def test_the_registered_op_has_the_schema():
    expected = "rrgkern_test::scale_(float factor, Tensor(a1!) values) -> ()"
    assert str(scale_._opoverload._schema) == expected


@pytest.mark.parametrize("mask", [None, torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)])
def test_opcheck_and_gradient(mask):
    flat = flatten(inputs(mask))
    torch.library.opcheck(weighted_power, flat)
    assert torch.autograd.gradcheck(lambda values: weighted_power(values, *flat[1:])[0], flat[0])


def test_opcheck_of_an_op_that_writes():
    torch.library.opcheck(scale_, (2.0, torch.ones(3)))


def test_compiles_as_one_graph():
    record = inputs()

    def call(values: Tensor) -> Tensor:
        return weighted_power(*flatten(record._replace(values=values)))[0]

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    values = record.values
    (eager,) = torch.autograd.grad(call(values), values)
    (traced,) = torch.autograd.grad(compiled(values), values)
    assert torch.equal(compiled(values), call(values))
    assert torch.equal(traced, eager)


def test_flatten_and_pack_are_inverse():
    record = inputs()
    flat = flatten(record)
    assert flat == (record.values, *record.weights, *record[2:])
    packed = pack(Inputs, flat)
    assert isinstance(packed.weights, Weights)
    assert flatten(packed) == flat


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: schema(ToScale, Tensor, ("other",)), ValueError, "mutates_args"),
        (lambda: pack(ToScale, (1.0,)), ValueError, "1 inputs, wanted 2: ToScale"),
        (lambda: gradients(ToScale, other=None), TypeError, "ToScale has no field other"),
    ],
)
def test_refusals_are_one_line(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
