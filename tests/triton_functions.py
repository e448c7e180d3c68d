"""Triton functions of the library by name, wherever their files lie."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any

import rrgkern


@functools.cache
def triton_functions() -> dict[str, Any]:
    """Import every file of the library that imports triton, and map its public functions' names.

    A value is a JITFunction, or what the interpreter has in its place. Two functions of one name
    are an AssertionError.
    """
    functions: dict[str, Any] = {}
    for info in pkgutil.walk_packages(rrgkern.__path__, "rrgkern."):
        room, _, file = info.name.rpartition(".")
        if file.startswith("triton_") or room.endswith(".triton_lib"):
            for name, value in vars(importlib.import_module(info.name)).items():
                public = not name.startswith("_")
                if public and hasattr(value, "fn") and hasattr(value, "arg_names"):
                    assert functions.setdefault(name, value) is value, f"{name} is there twice"
    return functions
