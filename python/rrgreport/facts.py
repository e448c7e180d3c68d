"""Show the facts of a report, and its labels by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rrgclinical.labels import OBSERVATIONS, ClassId

TRUTH = {
    ClassId.BLANK: "not mentioned",
    ClassId.POSITIVE: "positive",
    ClassId.NEGATIVE: "negative",
    ClassId.UNCERTAIN: "uncertain",
}
# (verdict of the facts, whether the reference is positive) -> (class of the cell, sign, words)
OUTCOMES = {
    ("entailed", True): ("right", "\N{CHECK MARK}", "found"),
    ("entailed", False): ("wrong", "\N{MULTIPLICATION X}", "false alarm"),
    ("denied", True): ("wrong", "\N{MULTIPLICATION X}", "contradicted, counts twice"),
    ("denied", False): ("free", "\N{EN DASH}", "costs nothing"),
    ("not mentioned", True): ("lost", "\N{WHITE CIRCLE}", "missed"),
}


@dataclass(frozen=True)
class Verdict:
    """One label by the facts, by the reference, and in the reward."""

    label: str
    verdict: str
    truth: str
    fact: str
    kind: str
    symbol: str
    outcome: str


@dataclass(frozen=True)
class FactsRead:
    """Facts of a report in order, and the labels mentioned there or in the reference."""

    statements: list[str]
    verdicts: list[Verdict]


def read_facts(note: Mapping[str, Any]) -> FactsRead:
    """Read FactS's note of a report, with the 14 class ids that judged it.

    Labels that the facts do not mention and the reference does not hold count for nothing and are
    left out.
    """
    verdicts = []
    for index, label in enumerate(OBSERVATIONS):
        judged, true_class = note["labels"].get(label, {}), ClassId(note["truth"][index])
        verdict, fact = judged.get("verdict", "not mentioned"), judged.get("fact") or ""
        positive = true_class in (ClassId.POSITIVE, ClassId.UNCERTAIN)
        if (verdict, positive) in OUTCOMES:
            kind, symbol, outcome = OUTCOMES[verdict, positive]
            said = TRUTH[true_class]
            verdicts.append(Verdict(label, verdict, said, fact, kind, symbol, outcome))
    return FactsRead(list(note["facts"]), verdicts)
