"""Triton's interpreter patches `triton.language` once a launch, not at each call of a function.

A launch exchanges some 200 functions of the language for those of the interpreter and puts them
back at its end. Each call of a `@triton.jit` function from a kernel does the same anew, which took
half of the time of an interpreted kernel (Triton 3.7). Within a launch they are exchanged already.
"""

from __future__ import annotations

import functools
from typing import Any


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

    interpreter._patch_lang = patch_if_new
    interpreter.GridExecutor.__call__ = launched
