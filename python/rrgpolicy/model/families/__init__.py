"""One module a model type, for what a family does otherwise than `Family`."""

from __future__ import annotations

import functools
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rrgpolicy.model.families.family import Family

# One group a row and a batch: blocks of tokens are counted from a row's first.
ALONE = {"llama4", "deepseek_v4"}

__all__ = ["Family", "family_of", "module_of"]


def family_of(config: Any) -> Family:
    """Return the family of the configuration's `model_type`; most need none of their own."""
    return _named(module_of(config))


def module_of(config: Any) -> str:
    """Name the module of this folder that would say what the family does otherwise."""
    return str(config.model_type).replace("-", "_")  # "blip-2" is no name of a module


@functools.cache
def _named(name: str) -> Family:
    # a decoder that stands alone is of the family that it was made for
    for own in (name, name.removesuffix("_text")):
        if own.isidentifier() and find_spec(f"{__name__}.{own}") is not None:
            family: Family = import_module(f"{__name__}.{own}").FAMILY
            return family
    return Family(joins=name.removesuffix("_text") not in ALONE)
