"""Load the table of tiers, weights and costs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import yaml

from rrgclinical.common.errors import UserError
from rrgclinical.common.files import read_whole
from rrgclinical.common.plain_yaml import read_values
from rrgclinical.common.resolve import nearest
from rrgclinical.labels import SUPPORT_DEVICES
from rrgclinical.rules.concepts import CONCEPT_ID, CONCEPTS
from rrgclinical.rules.cues import SEVERITIES
from rrgclinical.severity.context import OLDEST, Context, words_pattern
from rrgclinical.severity.reading import WRONG_TIP, SidedFinding

DEFAULT = Path(__file__).with_name("significance.yaml")
DEVICES = frozenset(i for i, c in enumerate(CONCEPTS) if SUPPORT_DEVICES in c.states)
_FINDINGS = {c.name: i for i, c in enumerate(CONCEPTS) if not c.anatomy}
_GREATEST_FACTOR = 3.0
SUMMARY = CONCEPT_ID["acute cardiopulmonary abnormality"]
_WIDE, _GRAVE = 0.6, 0.45
"""Affinity from which a denial denies another finding too; weight from which "nothing acute"."""


@dataclass(frozen=True, eq=False)
class Significance:
    """Weights by concept id, and what differences cost.

    weight: of a finding. misplaced: of a device in a wrong place. affinity: (concept, concept) ->
    share in common, of pairs that have any. left: share that a difference leaves, by its name.
    factors: by name. normal: weight of all negative statements. unspoken: share of it that is
    never lost. digest: of the file. own: its name, where it is not the packaged one. context: what
    age and indication make of the weights, None where a table of one's own says nothing of it.
    """

    weight: Mapping[int, float]
    misplaced: Mapping[int, float]
    affinity: Mapping[tuple[int, int], float]
    left: Mapping[str, float]
    factors: Mapping[str, float]
    normal: float
    unspoken: float
    digest: str
    own: str
    context: Callable[[], Context] | None = None

    def times(self, factors: tuple[tuple[int, float], ...]) -> Significance:
        """Return the table with these concepts' weights multiplied.

        One may be above 1 here: `judge` holds it at 1 once the grade has been multiplied too.
        """
        by = dict(factors)
        weight = {c: w * by.get(c, 1.0) for c, w in self.weight.items()}
        misplaced = {c: min(1.0, w * by.get(c, 1.0)) for c, w in self.misplaced.items()}
        return replace(self, weight=weight, misplaced=misplaced)

    @cached_property
    def wide(self) -> Mapping[int, frozenset[int]]:
        """Map each concept to those whose denial denies it."""
        pairs = [(a, b) for (a, b), share in self.affinity.items() if share >= _WIDE]
        pairs += [(SUMMARY, concept) for concept, w in self.weight.items() if w >= _GRAVE]
        return {c: frozenset(a for a, b in pairs if b == c) for c in self.weight}


def load_table(file: str | Path | None = None) -> Significance:
    """Read a table, the packaged one by default.

    Raises UserError for a file that is no table, a finding that is unknown, missing or named twice,
    a pair of related findings that stands twice or is one finding, a misplaced one that is no
    device, a weight outside its range, and weights that are all 0.
    """
    if file is not None and not isinstance(file, str | Path):
        raise UserError(f"severity: table is {file!r}; wanted the path of a YAML file")
    if not file:
        return _packaged()
    table = _read(Path(file).expanduser())
    if table.context:
        table.context()  # what is wrong in it is told at once
    return table


@cache
def _packaged() -> Significance:
    return _read(DEFAULT)


@cache
def _model() -> Any:
    """Parse the packaged file, once: it takes longer than all that is made of it."""
    return read_values(DEFAULT.read_text(encoding="utf-8"))


def _read(path: Path) -> Significance:
    try:
        content = read_whole(path)
        values = _model() if path == DEFAULT else read_values(content.decode("utf-8-sig"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; wanted a table as severity's") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = str(error).replace("\n", " ")
        raise UserError(
            f"{path} is no YAML ({line}); write it as the packaged table is, in UTF-8"
        ) from error
    return _table(str(path), values, hashlib.sha256(content).hexdigest()[:16])


def _table(path: str, values: Any, digest: str) -> Significance:
    model = _model()
    _same_keys(path, "", {"context": None, **_mapping(path, values)}, model)
    for part in ("factors", "left"):
        _same_keys(path, f"{part}: ", values[part], model[part])
    top = {"normal": values["normal"], "unspoken": values["unspoken"], "devices": values["devices"]}
    for shares in (values["tiers"], values["left"], values["misplaced"], top):
        for name, share in _mapping(path, shares).items():
            _number(path, str(name), share, 1.0)
    for name, factor in values["factors"].items():
        _number(path, name, factor, _GREATEST_FACTOR)
    factors = {name: float(x) for name, x in values["factors"].items()}
    misplaced = {k: v for k, v in values["misplaced"].items() if k != "other"}
    if "other" not in values["misplaced"]:
        raise UserError(f"{path}: misplaced: other is missing; give devices without a line one")
    other = float(values["misplaced"]["other"])
    named = {_concept(path, name): float(share) for name, share in misplaced.items()}
    if other_kind := [name for name in misplaced if CONCEPT_ID[name] not in DEVICES]:
        raise UserError(f"{path}: misplaced: {other_kind[0]!r} is no device, take it out")
    weight = _weights(path, values)
    if not any(weight.values()):
        raise UserError(f"{path}: every finding weighs 0; give a tier a weight above it")
    return Significance(
        weight=weight,
        misplaced={device: named.get(device, other) for device in DEVICES},
        affinity=_affinity(path, values["related"], float(values["devices"])),
        left={name: float(share) for name, share in values["left"].items()},
        factors=factors,
        normal=float(values["normal"]),
        unspoken=float(values["unspoken"]),
        digest=digest,
        own="" if path == str(DEFAULT) else Path(path).name,
        context=partial(_context, path, values["context"]) if "context" in values else None,
    )


def _context(path: str, values: Any) -> Context:
    model = _model()["context"]
    _same_keys(path, "context: ", values, model)
    ages = []
    for group in _listed(path, "context: ages", values["ages"], dict):
        _same_keys(path, "context: ages: ", group, model["ages"][0])
        low, high = (_number(path, key, group[key], OLDEST) for key in ("from", "to"))
        if low > high:
            raise UserError(f"{path}: from {low:g} to {high:g} is no age; exchange them")
        factor = _number(path, "factor", group["factor"], _GREATEST_FACTOR)
        names = _listed(path, "context: findings", group["findings"])
        ages.append((low, high, factor, tuple(_concept(path, name) for name in names)))
    asks = {
        _concept(path, name): _listed(path, f"context: {name}", words)
        for name, words in _mapping(path, values["asks"]).items()
    }
    factor = _number(path, "asked", values["asked"], _GREATEST_FACTOR)
    patterns = {concept: words_pattern(words) for concept, words in asks.items()}
    return Context(
        tuple(ages), factor, patterns, tuple(words[0] for words in asks.values() if words)
    )


def _weights(path: str, values: Mapping[str, Any]) -> dict[int, float]:
    weights: dict[int, float] = {}
    for tier, names in _mapping(path, values["findings"]).items():
        if tier not in values["tiers"]:
            names = ", ".join(values["tiers"])
            raise UserError(f"{path}: findings of the tier {tier!r}, but tiers has {names}")
        for name in _listed(path, f"findings: {tier}", names):
            concept = _concept(path, name)
            if concept in weights:
                raise UserError(f"{path}: the finding {name!r} stands twice; keep one")
            weights[concept] = float(values["tiers"][tier])
    missing = [name for name, concept in _FINDINGS.items() if concept not in weights]
    if missing:
        raise UserError(f"{path}: no tier has {', '.join(missing)}; put each into one")
    return weights


def _affinity(path: str, related: Any, devices: float) -> dict[tuple[int, int], float]:
    named: set[frozenset[int]] = set()
    shares = {(i, j): devices for i in DEVICES for j in DEVICES}
    shares |= {(concept, concept): 1.0 for concept in _FINDINGS.values()}
    for entry in related if isinstance(related, list) else [related]:
        if not isinstance(entry, list) or len(entry) != 3:
            raise UserError(f"{path}: related has {entry!r}; wanted [finding, finding, share]")
        first, second = (_concept(path, name) for name in entry[:2])
        if first == second or frozenset((first, second)) in named:
            fault = "one finding twice" if first == second else "a pair that stands twice"
            raise UserError(f"{path}: related has {entry!r}, {fault}; keep one of two findings")
        named.add(frozenset((first, second)))
        share = _number(path, f"related {entry[0]}, {entry[1]}", entry[2], 1.0)
        shares[first, second] = shares[second, first] = share
    return shares


def _same_keys(path: str, part: str, values: Any, model: Mapping[str, Any]) -> None:
    entries = _mapping(path, values)
    for name in entries:
        if name not in model:
            close = nearest(str(name), model)
            raise UserError(f"{path}: {part}unknown key {name!r}; {close}it has {', '.join(model)}")
    if lacking := [name for name in model if name not in entries]:
        raise UserError(f"{path}: {part}{', '.join(lacking)} missing; see the packaged table")


def _mapping(path: str, values: Any) -> Mapping[str, Any]:
    if values is None:
        raise UserError(f"{path}: nothing stands where names with their values are wanted")
    if not isinstance(values, dict):
        raise UserError(f"{path}: {values!r} stands where names with their values are wanted")
    return values


def _listed(path: str, name: str, values: Any, kind: type = str) -> list[Any]:
    if not isinstance(values, list) or not all(
        isinstance(v, kind) and str(v).strip() for v in values
    ):
        raise UserError(f"{path}: {name} is {values!r}; wanted a list of names, [] for none")
    return values


def _concept(path: str, name: Any) -> int:
    if not isinstance(name, str) or name not in _FINDINGS:
        close = nearest(str(name), _FINDINGS)
        raise UserError(f"{path}: unknown finding {name!r}; {close}see the packaged table")
    return CONCEPT_ID[name]


def _number(path: str, name: str, value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        point = "; a decimal has a point" if value is None or isinstance(value, str) else ""
        raise UserError(f"{path}: {name} is {value!r}; wanted a number from 0 to {most:g}{point}")
    return float(value)


def caveat(table: Significance) -> str:
    """Say whose weights a value has, and what it is not."""
    whose = "ours, no radiologist has set them"
    if table.own:
        whose = f"those of {table.own} (digest {table.digest})"
    return f"Severity's weights are {whose}; it is not GREEN, it is not CRIMSON."


def weight(finding: SidedFinding, table: Significance) -> float:
    """Weigh a finding: its tier, graded, suspected or one of two sides."""
    factors = table.factors
    value = full_weight(finding, table)
    if finding.paired:
        value *= factors["each of two sides"]
    return value * factors["suspected"] if finding.doubt else value


def full_weight(finding: SidedFinding, table: Significance) -> float:
    """Weigh a finding that is no doubt, as if it had no second side."""
    if finding.tip == WRONG_TIP:
        return table.misplaced[finding.concept]
    value = table.weight[finding.concept]
    if finding.severity:
        value *= table.factors[SEVERITIES[finding.severity]]
    if finding.tension:
        value *= table.factors["tension"]
    return min(1.0, value)
