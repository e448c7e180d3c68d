"""Triton's interpreter for tests: the language is patched once a launch, and types are made once.

A launch exchanges some 200 functions of the language for those of the interpreter and puts them
back at its end. Each call of a `@triton.jit` function from a kernel does the same anew, which took
half of the time of an interpreted kernel (Triton 3.7). Within a launch they are exchanged already.

Half of what is left went into the types of intermediate values, made anew for each, and into the
check for overflow, seven operations of the language for each sum or product of integers.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

EXACT = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


class _Nothing:
    """A scope that has nothing to put back."""

    def restore(self) -> None:
        """Put nothing back."""


@functools.cache
def patch_once() -> None:
    """Let calls within a launch find the language as the launch has patched it."""
    from triton.runtime import interpreter

    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    languages: set[Any] = {interpreter.tl, interpreter.tl.core}
    patched: set[Any] = set()
    blocks = _make_types_once(interpreter)
    interpreter.interpreter_semantic.binary_op_sanitize_overflow_impl = refuse_overflow

    @functools.cache
    def of(fn: Any) -> frozenset[Any]:
        values = [v for v in fn.__globals__.values() if isinstance(v, type(interpreter.tl))]
        return frozenset(languages.intersection(values))

    def patch_if_new(fn: Any) -> Any:
        if of(fn) and of(fn) <= patched:
            return _Nothing()
        patched.update(of(fn))
        return patch(fn)

    def launched(self: Any, *args: Any, **options: Any) -> Any:
        patched.clear()
        try:
            return launch(self, *args, **options)
        finally:
            patched.clear()
            blocks.clear()

    builder = interpreter.InterpreterBuilder
    dot, handle = builder.create_dot, interpreter.TensorHandle

    def wide_dot(self: Any, left: Any, right: Any, *others: Any) -> Any:
        """Multiply bf16, which is held as integers, in fp32."""
        sides = [
            handle((x.data.astype(np.uint32) << 16).view(np.float32), interpreter.tl.float32)
            if x.dtype == interpreter.tl.bfloat16
            else x
            for x in (left, right)
        ]
        return dot(self, *sides, *others)

    builder.create_dot = wide_dot
    interpreter._patch_lang = patch_if_new
    interpreter.GridExecutor.__call__ = launched


def refuse_overflow(left: Any, right: Any, operation: Any) -> None:
    """Raise AssertionError where a sum, difference or product leaves its type of integers."""
    kind = left.type.scalar
    if kind.int_bitwidth >= 64:
        return
    values = (side.handle.data.astype(np.int64) for side in (left, right))
    exact = EXACT[operation.__name__](*values)
    assert kind.get_int_min_value() <= exact.min() and exact.max() <= kind.get_int_max_value(), (
        f"int{kind.int_bitwidth} overflow detected for operation {operation.__name__}"
    )


def _make_types_once(interpreter: Any) -> dict[Any, Any]:
    """Share what values of the same type hold; return the types of blocks, to be dropped."""
    core = interpreter.tl.core
    real_block, real_dtype = core.block_type.__init__, interpreter._get_np_dtype
    blocks: dict[Any, Any] = {}
    dtypes: dict[str, Any] = {}

    def block(self: Any, element_ty: Any, shape: Any) -> None:
        # The entry holds the element's type, so its id is of no other.
        key = (id(element_ty), *shape)
        if key not in blocks:
            real_block(self, element_ty, shape)
            blocks[key] = self.__dict__
        self.__dict__.update(blocks[key])

    @functools.cache
    def shape_of(sizes: tuple[int, ...]) -> tuple[Any, Any]:
        return core.tuple([core.constexpr(size) for size in sizes]), core.constexpr(
            functools.reduce(int.__mul__, sizes, 1)
        )

    def value(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = shape_of(type.shape if type.is_block() else ())

    def np_dtype(kind: Any) -> Any:
        scalar = kind.scalar
        if isinstance(scalar, core.pointer_type):
            return real_dtype(scalar)
        if scalar.name not in dtypes:
            dtypes[scalar.name] = real_dtype(scalar)
        return dtypes[scalar.name]

    core.block_type.__init__, core.tensor.__init__ = block, value
    interpreter._get_np_dtype = np_dtype
    return blocks
