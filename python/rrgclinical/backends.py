"""Build labellers and extractors by name; tell which files that models need are absent."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rrgclinical.common.arguments import check_options
from rrgclinical.common.errors import UserError
from rrgclinical.entities import Entities


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


def _find(table: dict[str, str], what: str, name: str) -> Callable[..., Any]:
    if name not in table:
        raise UserError(f"unknown {what} {name!r}: choose one of {', '.join(sorted(table))}")
    module, attribute = table[name].split(":")
    return getattr(importlib.import_module(module), attribute)


# Backend -> option -> the file that it names.
FILES = {
    "chexbert": {"weights": "chexbert.pth of StanfordAIMI/RRG_scorers"},
    "radgraph": {"weights": "radgraph-xl.tar.gz of StanfordAIMI/RRG_scorers"},
    "ratescore": {
        "ner": "folder of Angelakeke/RaTE-NER-Deberta",
        "embedder": "folder of FremyCompany/BioLORD-2023-C",
    },
    "bertscore": {"weights": "folder of distilbert/distilroberta-base"},
    "sdr": {"embedder": "folder of FremyCompany/BioLORD-2023-C"},
}
# A term that is made of several backends.
_MADE_OF = {"radcliq": ("radgraph", "chexbert", "bertscore")}
_BESIDE = ("/", "./", "../", "~")


def absent_files(
    backends: Iterable[str], options: Mapping[str, Mapping[str, Any]], built: Iterable[str] = ()
) -> list[str]:
    """List the absent ones of the files that backends, or terms of a reward, need.

    options: those of each backend, `reward.options`. Backends in `built` are there already. A name
    that could be of the hub's local cache is not looked for.
    """
    named = ("radgraph" if name.startswith("radgraph_") else name for name in backends)
    parts = dict.fromkeys(part for name in named for part in _MADE_OF.get(name, (name,)))
    absent = []
    for backend in [name for name in parts if name not in set(built)]:
        for option, what in FILES.get(backend, {}).items():
            key = f"reward.options.{backend}.{option}"
            value = options.get(backend, {}).get(option)
            if value is None:
                absent.append(f"{key} ({what}) is not set")
            elif str(value).startswith(_BESIDE) and not Path(value).expanduser().exists():
                absent.append(f"{key}={value} ({what}) does not exist")
    return absent
