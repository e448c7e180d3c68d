"""Show the facts of a report, its labels by them, and rollouts that FactS judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrgclinical.labels import OBSERVATIONS, ClassId
from rrgreport import numbers
from rrgreport.run_files import read_record

SHOWN = 4  # rollouts of the last recorded step
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


@dataclass(frozen=True)
class ScoredReport:
    """A sampled report of study `id`; `score` is FactS's, `reward` the total."""

    id: str
    step: int
    text: str
    score: str
    reward: str
    facts: FactsRead


def last_rollouts(steps: Path) -> list[ScoredReport]:
    """Choose highest, lowest and some between by FactS reward, of the last record.

    The best alone would mislead. None where no step is recorded, or where FactS was no reward.
    Raises UserError for a file that is no record.
    """
    # Numbers of six digits, or of more: the longer name is the later step.
    records = sorted(steps.glob("*.json.gz"), key=lambda path: (len(path.name), path.name))
    if not records:
        return []
    record = read_record(records[-1])
    if "facts" not in record["notes"]:
        return []
    # Of a group that says one thing eight times, once.
    distinct: dict[tuple[str, str], tuple[float, ScoredReport]] = {}
    competing = [
        (group["study"], member)
        for group in record["groups"]
        for member in group["members"]
        if member["competes"]
    ]
    notes, rewards = record["notes"]["facts"], record["rewards"]
    for (study, member), note, score, total in zip(
        competing, notes, rewards["facts"], rewards["total"], strict=True
    ):
        if member["origin"] == "sampled" and (study, member["text"]) not in distinct:
            shown = (numbers.value(score), numbers.value(total))
            rollout = ScoredReport(study, record["step"], member["text"], *shown, read_facts(note))
            distinct[study, member["text"]] = score, rollout
    ranked = [rollout for _, rollout in sorted(distinct.values(), key=lambda pair: -pair[0])]
    last = len(ranked) - 1
    places = dict.fromkeys(round(i * last / (SHOWN - 1)) for i in range(SHOWN) if ranked)
    return [ranked[place] for place in places]
