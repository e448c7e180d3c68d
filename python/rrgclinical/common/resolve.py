"""Imports functions of one's own that a recipe names as `package.module:function`."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rrgclinical.common.errors import UserError, cause_line
from rrgclinical.common.shown import hidden


def nearest(name: str, names: Iterable[str]) -> str:
    """Ask "did you mean X? " for the nearest known name, if one is near."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"did you mean {close[0]}? " if close else ""


def resolve(
    name: str, setting: str, unknown: str, mend: str = "define it there"
) -> Callable[..., Any]:
    """Import the function that `name` stands for.

    setting: the setting with that name, which begins each line; `unknown`: the line for a name
    that is no `package.module:function`; `mend`: how to give a module what it lacks. Raises
    UserError for that, for a module that cannot be imported and for one without such a function.
    """
    module, _, function = name.partition(":")
    if not module or module.startswith(".") or not function:
        raise UserError(f"{unknown}, or your own as package.module:function")
    try:
        imported = importlib.import_module(module)
    except (ImportError, SyntaxError, SystemExit) as error:
        reason = "it calls exit" if isinstance(error, SystemExit) else error
        raise UserError(
            f"{setting}: {module} cannot be imported ({reason}); "
            "repair it, or put its folder on PYTHONPATH"
        ) from error
    value = getattr(imported, function, None)
    if not callable(value):
        fault = "has no" if value is None else "holds no function"
        raise UserError(f"{setting}: {imported.__file__} {fault} {function}; {mend}")
    return value


def own_files(names: Iterable[str]) -> dict[str, Path]:
    """Find the files of those names that are `package.module:function`.

    By the file's path below its package's folder; one that `${oc.env:KEY}` stands for, by that.
    """
    files = {}
    for name in names:
        module, colon, _ = name.partition(":")
        with suppress(ImportError, SyntaxError, ValueError):  # told where the function is called
            spec = find_spec(module) if colon else None
            if spec is not None and spec.has_location and spec.origin is not None:
                file = Path(spec.origin)
                depth = module.count(".") + 1 + (spec.submodule_search_locations is not None)
                written = hidden(name)
                files[written if written != name else str(Path(*file.parts[-depth:]))] = file
    return files


def choose(
    name: str, setting: str, own: Mapping[str, Any], group: str, mend: str, hint: str = ""
) -> Any:
    """Find what `name` stands for: one of `own`, an installed package's, or `module:function`.

    setting, mend: as in `resolve`, the setting without its value. group: of the entry points by
    which packages offer theirs. hint: for an unknown name, in place of the nearest one. Raises
    UserError as `resolve` does, and for an entry point that cannot be imported.
    """
    if name in own:
        return own[name]
    installed = {point.name: point for point in entry_points(group=group)}
    if name in installed:
        try:
            return installed[name].load()
        except (ImportError, SyntaxError, AttributeError) as error:
            raise UserError(
                f"{setting}={name}: its package offers {installed[name].value}, which cannot be "
                f"imported ({error}); repair or remove that package"
            ) from error
    names = [*own, *installed]
    hint = hint or nearest(name, names)
    unknown = f"{setting}={name!r} is unknown; {hint}choose {', '.join(names)}"
    return resolve(name, f"{setting}={name}", unknown, mend)


def call(function: Callable[..., Any], setting: str, mend: str, *arguments: Any) -> Any:
    """Call a function of one's own with `arguments`; UserError for whatever it raises.

    setting, mend: as in `resolve`.
    """
    try:
        return function(*arguments)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"{setting} failed: {cause_line(error)}; {mend}") from error
