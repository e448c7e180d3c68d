"""One module a layout of files, and what several of them read with."""

from __future__ import annotations

import functools
import pkgutil
from importlib import import_module

from rrgdata.sources.source import Source

__all__ = ["Source", "every_source"]


@functools.cache
def every_source() -> dict[str, Source]:
    """Collect the layouts by name, from the modules of this folder."""
    modules = [import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)]
    sources: list[Source] = [module.SOURCE for module in modules if hasattr(module, "SOURCE")]
    return {source.name: source for source in sorted(sources, key=lambda source: source.name)}
