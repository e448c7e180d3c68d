"""Weigh `severity` by the patient's age and by what the indication asks for.

    rrgtrain rl editgrpo 'reward.terms={experiments.severity_context:in_context: 1}' ...
    rrgtrain stress editgrpo 'reward.terms={severity: 1, experiments.severity_context:at_80: 1,
        experiments.severity_context:asked: 1}'

The orders, written before the table (> is worth more):

    C1  without an age and an indication that the table knows = `severity`, to the bit
    C2  dropped, not asked for > dropped, asked for: the one question was not answered
    C3  invented, not asked for > invented, asked for: it is what will be treated
        (C2 and C3 are ties of a finding that weighs 1 already, as a large pneumothorax)
    C4  dropped at an age that expects it > dropped at one that does not
    C5  unchanged > dropped at an age that expects it: it is still a finding
    C6  an expected finding dropped > a critical one dropped, at every age
    C7  another denial dropped > the denial of what was asked dropped
    C8  the orders of `severity` hold in every context

A finding's weight in the table of `severity` (`reward.options.severity.table`), and that of a
device in a wrong place, is multiplied by a factor of its age group and by one if it is asked for;
graded, it is held at 1. So the formula stays: weights of both reports change alike, and the
reference has 1. The factors stand in `severity_context.yaml`. Age and indication are those of the
study's indication ("67-year-old man with cough"), the only place where data sets here tell of an
age; one that was taken out ("___ year old") is none. The term is off unless it is named. The
numbers are ours: no radiologist has set them, and nothing was trained with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from rrgclinical.common.arguments import is_real
from rrgclinical.common.files import read_whole_text
from rrgclinical.common.plain_yaml import read_values
from rrgclinical.rules.concepts import CONCEPT_ID
from rrgclinical.severity import Significance, judge, load_table
from rrgtrain.errors import UserError
from rrgtrain.rewards.batch import RewardBatch

DEFAULT = Path(__file__).with_suffix(".yaml")
OLDEST, MOST = 120, 2.0
_AGE = re.compile(
    r"\b(?P<years>\d{1,3})[\s-]*(?:years?|yrs?|y)[\s./-]*(?:old|o)\b"
    r"|\b(?:age|aged)\s*:?\s*(?P<age>\d{1,3})\b"
    r"|\b(?P<short>\d{1,3})[\s-]*(?:fe)?male\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class AgeGroup:
    """Concepts that weigh `factor` times as much from `low` to `high` years, both included."""

    low: int
    high: int
    factor: float
    concepts: frozenset[int]


@dataclass(frozen=True)
class Context:
    """The table: age groups, the factor of what is asked, words that ask."""

    ages: tuple[AgeGroup, ...]
    factor: float
    asks: Mapping[int, re.Pattern[str]]

    def factors(self, indication: str) -> tuple[tuple[int, float], ...]:
        """Give the factors that are not 1, by concept in ascending order."""
        factors: dict[int, float] = {}
        age = age_of(indication)
        for group in self.ages:
            if age is not None and group.low <= age <= group.high:
                for concept in group.concepts:
                    factors[concept] = factors.get(concept, 1.0) * group.factor
        for concept, words in self.asks.items():
            if words.search(indication):
                factors[concept] = factors.get(concept, 1.0) * self.factor
        return tuple(sorted((c, x) for c, x in factors.items() if x != 1.0))


def age_of(indication: str) -> int | None:
    """Read the first age in years; None for none, or above 120."""
    match = _AGE.search(indication)
    years = next((int(x) for x in match.groups() if x), OLDEST + 1) if match else OLDEST + 1
    return years if years <= OLDEST else None


@cache
def load_context(file: Path = DEFAULT) -> Context:
    """Read a table; UserError, one line, for a file that is none."""
    try:
        values = read_values(read_whole_text(file))
    except (OSError, ValueError, yaml.YAMLError) as error:
        line = " ".join(str(error).split())
        raise UserError(f"{file}: no table can be read ({line}); see {DEFAULT.name}") from error
    _same(file, "", values, {"age", "indication"})
    groups = values["age"] or []
    if not isinstance(groups, list):
        raise UserError(f"{file}: age is {groups!r:.40}; wanted a list of groups, [] for none")
    asked = values["indication"]
    _same(file, "indication: ", asked, {"factor", "asks"})
    if not isinstance(asks := asked["asks"] or {}, dict):
        raise UserError(f"{file}: indication: asks is {asks!r:.40}; wanted words by finding")
    patterns = {
        _concept(file, name): _words(file, f"indication: asks: {name}", words)
        for name, words in asks.items()
    }
    ages = tuple(_group(file, f"age: [{i}]: ", group) for i, group in enumerate(groups))
    return Context(ages, _factor(file, "indication: ", asked["factor"]), patterns)


def _group(file: Path, where: str, group: Any) -> AgeGroup:
    bounds = {"from", "to"} & group.keys() if isinstance(group, dict) else set()
    _same(file, where, group, {"factor", "findings", *(bounds or {"from"})})
    low, high = group.get("from", 0), group.get("to", OLDEST)
    for name, years in (("from", low), ("to", high)):
        if not isinstance(years, int) or isinstance(years, bool) or not 0 <= years <= OLDEST:
            raise UserError(f"{file}: {where}{name} is {years!r:.40}; wanted 0 to {OLDEST} years")
    if low > high:
        raise UserError(f"{file}: {where}from {low} to {high} holds no age; exchange them")
    if not isinstance(names := group["findings"], list):
        raise UserError(f"{file}: {where}findings is {names!r:.40}; wanted a list")
    concepts = frozenset(_concept(file, name) for name in names)
    return AgeGroup(low, high, _factor(file, where, group["factor"]), concepts)


def _same(file: Path, where: str, values: Any, keys: set[str]) -> None:
    if not isinstance(values, dict) or values.keys() != keys:
        have = ", ".join(values) if isinstance(values, dict) else f"{values!r:.40}"
        raise UserError(f"{file}: {where}has {have}; wanted {', '.join(sorted(keys))}")


def _concept(file: Path, name: Any) -> int:
    if not isinstance(name, str) or CONCEPT_ID.get(name) not in load_table().weight:
        raise UserError(f"{file}: unknown finding {name!r:.40}; take one of severity's table")
    return CONCEPT_ID[name]


def _factor(file: Path, where: str, value: Any) -> float:
    if not is_real(value) or not 0 < value <= MOST:
        raise UserError(f"{file}: {where}factor is {value!r:.40}; wanted above 0, at most {MOST:g}")
    return float(value)


def _words(file: Path, where: str, words: Any) -> re.Pattern[str]:
    if not isinstance(words, list) or not all(isinstance(w, str) and w.strip() for w in words):
        raise UserError(f"{file}: {where} is {words!r:.40}; wanted a list of words")
    either = "|".join(r"\s+".join(map(re.escape, word.split())) for word in words)
    return re.compile(rf"(?<!\w)(?:{either or '(?!)'})(?!\w)", re.IGNORECASE)


def weighed(table: Significance, factors: Sequence[tuple[int, float]]) -> Significance:
    """Return the table of `severity` with these concepts' weights multiplied.

    A weight may be above 1 here: `judge` holds it at 1 once the grade has been multiplied too.
    """
    if not factors:
        return table
    by = dict(factors)
    weight = {c: w * by.get(c, 1.0) for c, w in table.weight.items()}
    misplaced = {c: min(1.0, w * by.get(c, 1.0)) for c, w in table.misplaced.items()}
    return replace(table, weight=weight, misplaced=misplaced)


def scores(batch: RewardBatch, indications: Sequence[str]) -> np.ndarray:
    """Compute each report's `severity` in its context, float64 [R]; keep the parts."""
    options = batch.settings.options.get("severity_context", {})
    if options.keys() - {"file"}:
        raise UserError(f"reward.options.severity_context has {', '.join(options)}; wanted file")
    context = load_context(Path(options.get("file", DEFAULT)).expanduser())
    reader = batch.open("severity")
    truth = reader.read(batch.references, keep=True)
    tables: dict[tuple[tuple[int, float], ...], Significance] = {}
    values = np.empty(len(batch.reports))
    for i, (got, want) in enumerate(zip(reader.read(batch.reports), truth, strict=True)):
        factors = context.factors(indications[i])
        table = tables.setdefault(factors, weighed(reader.table, factors))
        empty = not want.present and not want.denied
        same = empty and batch.reports[i].split() == batch.references[i].split()
        values[i] = judge(got, want, table, same=same).score
    return values


def in_context(batch: RewardBatch) -> np.ndarray:
    """Score each report in the context of its study."""
    return scores(batch, [study.indication for study in batch.studies])


def at_80(batch: RewardBatch) -> np.ndarray:
    """Score each report as of a patient of 80 years, for `rrgtrain stress`."""
    return scores(batch, ["80-year-old"] * len(batch.reports))


def at_30(batch: RewardBatch) -> np.ndarray:
    """Score each report as of a patient of 30 years, for `rrgtrain stress`."""
    return scores(batch, ["30-year-old"] * len(batch.reports))


def asked(batch: RewardBatch) -> np.ndarray:
    """Score each report as if its findings had been asked for, for `rrgtrain stress`."""
    every = "Fever, dyspnea, trauma: pneumothorax? effusion? nodule?"
    return scores(batch, [every] * len(batch.reports))
