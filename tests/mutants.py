"""Exchange one piece of a module's source: the planted faults that tests must catch."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).parent / "rrgkern" / "mutants.yaml"


def faults(name: str) -> Any:
    """Return the faults of `rrgkern/mutants.yaml` there: the right text and the wrong one."""
    return yaml.safe_load(TABLE.read_text(encoding="utf-8"))[name]


def mutate(module: types.ModuleType, old: str, new: str) -> types.ModuleType:
    """A copy of the module with `old`, which must stand in it exactly once, replaced by `new`."""
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {module.__name__}"
    mutant = types.ModuleType(module.__name__)
    exec(compile(source.replace(old, new), module.__name__, "exec"), mutant.__dict__)
    return mutant


def survivors(module: types.ModuleType, name: str, right: Callable[[Any], bool]) -> list[str]:
    """Return the faults of `faults(name)` that `right`, true of the module itself, misses."""
    assert right(module)
    return [new for old, new in faults(name) if right(mutate(module, old, new))]
