"""Build labellers and extractors by name, and check what is handed to them."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from rrgclinical.common.errors import UserError
from rrgclinical.entities import Entities

T = TypeVar("T")


@runtime_checkable
class SupportsItem(Protocol):
    """Holds one number, as an array or tensor does."""

    def item(self) -> Any:
        """Return it as Python's own."""
        ...


class Labeller(Protocol):
    """Reads the 14 observations of a report."""

    def label(self, reports: Sequence[str]) -> np.ndarray:
        """int8 `[R, 14]` class ids, row r for report r (see `rrgclinical.labels`)."""
        ...


class Extractor(Protocol):
    """Reads the entities of a report, sentence by sentence."""

    def extract(self, reports: Sequence[str]) -> Entities:
        """The entities of every report, in order of report, then of position."""
        ...


_LABELLERS: dict[str, str] = {
    "rules": "rrgclinical.rules.labeller:RulesLabeller",
    "chexbert": "rrgclinical.chexbert:CheXbertLabeller",
    "chexbert-official": "rrgclinical.official:OfficialCheXbert",
}
_EXTRACTORS: dict[str, str] = {
    "rules": "rrgclinical.rules.extractor:RulesExtractor",
    "radgraph": "rrgclinical.radgraph:RadGraphExtractor",
    "ratescore": "rrgclinical.ratescore:RaTEExtractor",
    "radgraph-official": "rrgclinical.official:OfficialRadGraphExtractor",
}


def register_labeller(name: str, target: str) -> None:
    """Let a recipe ask for `name`; `target` is "module:callable", imported at first use."""
    _register(_LABELLERS, "labeller", name, target)


def register_extractor(name: str, target: str) -> None:
    """Let a recipe ask for `name`; `target` is "module:callable", imported at first use."""
    _register(_EXTRACTORS, "extractor", name, target)


def build_labeller(name: str, **options: Any) -> Labeller:
    """The labeller called `name`, built with `options`.

    UserError lists the names it knows, or the options that the one named takes.
    """
    return _build(_LABELLERS, "labeller", name, options)


def build_extractor(name: str, **options: Any) -> Extractor:
    """The extractor called `name`, built with `options`. Raises as `build_labeller`."""
    return _build(_EXTRACTORS, "extractor", name, options)


def takes_device(what: str, name: str) -> bool:
    """Tell whether a named labeller or extractor (`what`) has a network."""
    table = _LABELLERS if what == "labeller" else _EXTRACTORS
    return "device" in inspect.signature(_find(table, what, name)).parameters


def _register(table: dict[str, str], what: str, name: str, target: str) -> None:
    if table.get(name, target) != target:
        raise ValueError(f"{what} {name!r} is already {table[name]}; choose another name")
    if ":" not in target:
        raise ValueError(f"target {target!r} of {what} {name!r}; wanted 'module:callable'")
    table[name] = target


def _build(table: dict[str, str], what: str, name: str, options: dict[str, Any]) -> Any:
    target = _find(table, what, name)
    check_options(f"{what} {name}", target, options)
    return target(**options)


def check_options(owner: str, target: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """UserError where `options` are not the parameters of `target`: one unknown, or one missing."""
    parameters = inspect.signature(target).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    options_of = {n: p for n, p in parameters.items() if p.kind is not p.VAR_POSITIONAL}
    takes = ", ".join(options_of) or "no options"
    if unknown := sorted(set(options) - set(options_of)):
        close = difflib.get_close_matches(unknown[0], options_of, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise UserError(f"{owner}: unknown option {unknown[0]!r}{hint}; it takes {takes}")
    needed = [n for n, p in options_of.items() if p.default is p.empty and n not in options]
    if needed:
        raise UserError(f"{owner}: option {needed[0]!r} is missing; it takes {takes}")


def _find(table: dict[str, str], what: str, name: str) -> Callable[..., Any]:
    if name not in table:
        raise UserError(f"unknown {what} {name!r}: choose one of {', '.join(sorted(table))}")
    module, attribute = table[name].split(":")
    return getattr(importlib.import_module(module), attribute)


def listed(values: Iterable[T], name: str, of: str = "str") -> list[T]:
    """List values in their order.

    name, of: what the caller calls the argument, and its members.

    Raises TypeError for one text, for what has no members, and for a mapping or a set, whose order
    says nothing of which value belongs to which.
    """
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name} is one {type(values).__name__}; wanted a sequence of {of}")
    try:
        members = iter(values)
    except TypeError:
        members = None
    if members is None or isinstance(values, (Mapping, Set)):
        shown = "None" if values is None else type(values).__name__
        raise TypeError(f"{name} is {shown}; wanted a sequence of {of}")
    return list(members)


def share_of_steps(progress: object) -> float:
    """Read the share of a run's steps that are done.

    Raises ValueError for anything but a number from 0 to 1.
    """
    value: Any = progress
    if isinstance(progress, SupportsItem) and getattr(progress, "ndim", None) == 0:
        value = progress.item()  # NumPy's and PyTorch's numbers
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not 0 <= value <= 1:
        raise ValueError(f"progress is {progress!r:.40}; wanted a share of the steps, 0 to 1")
    return float(value)


def share_of_state(state: Any) -> float:
    """Read the share of the steps that are done of TRL's `trainer_state`.

    All are where it is None, or knows no end. Raises ValueError for a state without numbers.
    """
    if state is None:
        return 1.0
    steps: Any = getattr(state, "max_steps", None)
    step: Any = getattr(state, "global_step", None)
    if not all(isinstance(n, numbers.Real) and math.isfinite(n) for n in (steps, step)):
        raise ValueError(
            f"trainer_state has max_steps {steps!r:.40} and global_step {step!r:.40}; wanted the "
            "numbers of transformers' TrainerState"
        )
    return min(1.0, step / steps) if steps > 0 else 1.0


def check_reports(reports: Sequence[str], name: str = "reports") -> list[str]:
    """List reports; TypeError names the first index that is no str.

    name: what the caller calls the argument.
    """
    texts = listed(reports, name)
    for index, report in enumerate(texts):
        if not isinstance(report, str):
            raise TypeError(f"{name}[{index}] is {type(report).__name__}; wanted str")
    return texts


def check_pairs(reports: Sequence[str], references: Sequence[str]) -> tuple[list[str], list[str]]:
    """List reports and the reference of each.

    Raises TypeError for what is no list of str, ValueError where they differ in number.
    """
    texts, truth = check_reports(reports), check_reports(references, "references")
    if len(texts) != len(truth):
        raise ValueError(f"{len(texts)} reports and {len(truth)} references; wanted one for each")
    return texts, truth
