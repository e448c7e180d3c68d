"""One module a layout of files, and what several of them read with."""

from __future__ import annotations

import functools
import pkgutil
from importlib import import_module
from pathlib import Path

from rrgclinical.common.errors import UserError
from rrgclinical.common.files import require_end
from rrgdata.sources.source import Source

__all__ = ["Source", "every_source", "guess_source", "require_place"]


@functools.cache
def every_source() -> dict[str, Source]:
    """Collect the layouts by name, from the modules of this folder."""
    modules = [import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)]
    sources: list[Source] = [module.SOURCE for module in modules if hasattr(module, "SOURCE")]
    return {source.name: source for source in sorted(sources, key=lambda source: source.name)}


def require_place(source: str, place: Path) -> None:
    """Raise UserError where the path of a data set is not there, or no directory."""
    may_be_file = getattr(every_source().get(source), "may_be_file", True)  # a loader of one's own
    if not (place.exists() if may_be_file else place.is_dir()):
        kind = "is a file" if place.exists() else "does not exist"
        what = "the files" if may_be_file else "the directory"
        raise UserError(
            f"{place} {kind}; wanted {what} of the data set (data.root), in the layout of {source}"
        )


def guess_source(root: Path) -> str:
    """Return the one source whose layout is found in `root`.

    Raises UserError, one line, where there is none or more than one, or no such path.
    """
    if not root.exists():
        raise UserError(f"{root} does not exist; wanted a data set: a directory or a table")
    ask = "name it by data.source=..."
    require_end(root)
    sources = every_source().values()
    if root.is_file():
        return next(source.name for source in sources if source.may_be_file)
    matches = [s.name for s in sources if any(any(root.glob(mark)) for mark in s.marks)]
    for file in (False, True):
        unmarked = (s for s in sources if s.holds is not None and s.may_be_file == file)
        matches = matches or [s.name for s in unmarked if s.holds and s.holds(root)]
    if not matches:
        raise UserError(
            f"no layout is recognised in {root}; {ask}, one of {', '.join(every_source())}"
        )
    if len(matches) > 1:
        raise UserError(f"{root} looks like {' and '.join(matches)}; {ask}")
    return matches[0]
