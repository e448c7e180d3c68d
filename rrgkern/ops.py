"""Register ops whose argument list is a NamedTuple, written once.

The schema is made of the record's annotations. The body, the fake and every kernel take `*inputs`
and name the fields with `pack`; a field that is a record itself stands for its own fields.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_type_hints

import torch
from torch import Tensor
from torch.library import CustomOpDef

R = TypeVar("R", bound=tuple[Any, ...])


def custom_op(
    name: str, record: type[tuple[Any, ...]], *, mutates: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], CustomOpDef]:
    """Register the decorated body as the op `name`, whose arguments are the fields of `record`.

    The result is what the body's annotation says: Tensor, None, or a tuple or record of Tensor.

    Raises:
        ValueError: see `schema`.
    """

    def register(body: Callable[..., Any]) -> CustomOpDef:
        text = schema(record, get_type_hints(body)["return"], mutates)
        return torch.library.custom_op(name, body, mutates_args=mutates, schema=text)

    return register


def schema(record: type[tuple[Any, ...]], returns: Any, mutates: Sequence[str] = ()) -> str:
    """Make the schema by torch.library.infer_schema, as of a function of the same list.

    Raises:
        ValueError: a field or a result of a type that the dispatcher does not know, or a name in
            `mutates` that is no field of the record.
    """
    several: Any = tuple(part for _, part in _fields(returns)) if _is_record(returns) else ()

    def body() -> None:
        raise AssertionError("only its signature is read")

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind, annotation=x) for name, x in _fields(record)]
    result: Any = tuple[several] if several else None if returns is types.NoneType else returns
    body.__signature__ = inspect.Signature(parameters, return_annotation=result)  # type: ignore[attr-defined]
    return torch.library.infer_schema(body, mutates_args=mutates)


def pack(record: type[R], inputs: Sequence[Any]) -> R:
    """The record of an op's arguments, `inputs` being one value for each field in order.

    Raises:
        ValueError: more or fewer inputs than fields.
    """
    wanted = len(_fields(record))
    if len(inputs) != wanted:
        raise ValueError(f"{len(inputs)} inputs, wanted {wanted}: {record.__name__}")
    return _build(record, inputs)


def flatten(record: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of an op, in order, from their record: what `pack` takes."""
    flat: list[Any] = []
    for value in record:
        flat.extend(flatten(value) if isinstance(value, tuple) else (value,))
    return tuple(flat)


def gradients(record: type[tuple[Any, ...]], **by_name: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return what a backward must: gradients by name, None for every other field.

    Raises:
        TypeError: a name that is no field of the record.
    """
    names = [name for name, _ in _fields(record)]
    for name in by_name:
        if name not in names:
            raise TypeError(f"{record.__name__} has no field {name}; its fields: {names}")
    return tuple(by_name.get(name) for name in names)


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


# Cached, because kernels pack at every call.
@functools.cache
def _fields(record: type[tuple[Any, ...]]) -> tuple[tuple[str, Any], ...]:
    """Names and types of the arguments, in order."""
    flat: list[tuple[str, Any]] = []
    for name, hint in get_type_hints(record).items():
        flat.extend(_fields(hint) if _is_record(hint) else [(name, hint)])
    return tuple(flat)


@functools.cache
def _layout(record: type[tuple[Any, ...]]) -> list[tuple[Any, int, int]]:
    """For each field the record that it is, or None, and where its inputs begin and end."""
    parts, begin = [], 0
    for hint in get_type_hints(record).values():
        end = begin + (len(_fields(hint)) if _is_record(hint) else 1)
        parts.append((hint if _is_record(hint) else None, begin, end))
        begin = end
    return parts


def _build(record: type[R], inputs: Sequence[Any]) -> R:
    make: Callable[..., R] = record
    parts = _layout(record)
    if len(parts) == len(inputs):
        return make(*inputs)
    return make(*(inputs[a] if kind is None else _build(kind, inputs[a:b]) for kind, a, b in parts))
