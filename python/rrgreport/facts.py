"""Show the facts of a report, and its labels by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def read_facts(note: Mapping[str, Any], truth: Sequence[int] | None = None) -> FactsRead:
    """Read FactS's note of a report beside the 14 class ids that judged it.

    Those are the note's own; `truth` stands in where an older run kept none. Labels that the facts
    do not mention and the reference does not hold count for nothing and are left out. Without
    class ids only what the facts say is shown.
    """
    truth, verdicts = note.get("truth", truth), []
    for index, label in enumerate(OBSERVATIONS):
        judged = note["labels"].get(label, {})
        verdict, fact = judged.get("verdict", "not mentioned"), judged.get("fact") or ""
        if truth is None:
            if judged:
                verdicts.append(Verdict(label, verdict, "unknown", fact, "free", "", "not judged"))
            continue
        true_class = ClassId(truth[index])
        positive = true_class in (ClassId.POSITIVE, ClassId.UNCERTAIN)
        if (verdict, positive) in OUTCOMES:
            kind, symbol, outcome = OUTCOMES[verdict, positive]
            said = TRUTH[true_class]
            verdicts.append(Verdict(label, verdict, said, fact, kind, symbol, outcome))
    return FactsRead(list(note["facts"]), verdicts)
