"""A claim beside what was measured: estimates of its rows, its checks, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.replicate.claims import MEASURES, Claim, Row
from experiments.replicate.measures import Ratios
from experiments.replicate.results import Result
from experiments.replicate.verdicts import NOT_JUDGED, Estimate, estimate, judge, verdict

Results = Mapping[str, list[Result]]
"""By job, one a seed, in the order of the seeds."""


@dataclass(frozen=True)
class RowOutcome:
    """One line of the table: an estimate a measure, and the command of each seed."""

    row: Row
    values: dict[str, Estimate]
    commands: tuple[str, ...]
    tried: str


@dataclass(frozen=True)
class CheckOutcome:
    """`text` is the check, `found` its difference, `outcome` whether it holds."""

    text: str
    measure: str
    found: Estimate
    outcome: str


@dataclass(frozen=True)
class Outcome:
    """Hold all that a page says of a claim.

    `curves` are [seeds, steps] by row where it draws curves."""

    claim: Claim
    seeds: tuple[int, ...]
    rows: tuple[RowOutcome, ...]
    checks: tuple[CheckOutcome, ...]
    verdict: str
    curves: dict[str, np.ndarray]

    def as_json(self) -> dict[str, Any]:
        """For replicate.json."""
        return {
            "claim": self.claim.name,
            "paper": self.claim.paper,
            "says": self.claim.says,
            "verdict": self.verdict,
            "seeds": self.seeds,
            "rows": {
                r.row.label: {
                    "values": {name: asdict(found) for name, found in r.values.items()},
                    "commands": r.commands,
                    "tried": r.tried,
                }
                for r in self.rows
            },
            "checks": [asdict(check) for check in self.checks],
            "differs": self.claim.differs,
        }


def outcome_of(claim: Claim, results: Results, seeds: tuple[int, ...], *, quick: bool) -> Outcome:
    """Judges a claim; with `quick` the differences stand there, and no verdict."""

    def of_row(row: Row, measure: str) -> list[Ratios]:
        return [result.measures[row.measure(measure)] for result in results[row.job]]

    rows = tuple(
        RowOutcome(
            row,
            {m: estimate(of_row(row, m)) for m in claim.measures if _measured(row, m, results)},
            tuple(result.command for result in results[row.job]),
            _tried(results[row.job]),
        )
        for row in claim.rows
    )
    checks = []
    for check in claim.checks:
        first, second = (
            of_row(claim.row(label), check.measure) for label in (check.first, check.second)
        )
        found = estimate(first, second, check.factor)
        outcome = NOT_JUDGED if quick else judge(check.kind, found)
        checks.append(CheckOutcome(check.text, MEASURES[check.measure], found, outcome))
    curves = {}
    if claim.curve:
        curves = {
            row.label: np.stack([r.top[:, 0] for r in of_row(row, claim.figure)])
            for row in claim.rows
        }
    total = NOT_JUDGED if quick else verdict([check.outcome for check in checks])
    return Outcome(claim, seeds, rows, tuple(checks), total, curves)


def _measured(row: Row, measure: str, results: Results) -> bool:
    """A start has no zero rate: it was not trained by rewards."""
    return all(row.measure(measure) in result.measures for result in results[row.job])


_FACTS = {
    "studies": "{} studies",
    "steps": "{} steps",
    "prompts": "of {} prompts",
    "group": "in groups of {}",
    "reports": "{} reports",
    "labels_alike": "distilled labels alike in {:.1%}",
    "without_gradient": "no gradient in {:.1%}",
    "chosen": "{} chosen",
}


def _tried(results: list[Result]) -> str:
    """What was run, in words; ranges where the seeds differ."""
    said = []
    for key, words in _FACTS.items():
        values = [result.facts[key] for result in results if key in result.facts]
        if values:
            shown = dict.fromkeys(words.format(v) for v in sorted(values))
            ends = [next(iter(shown)), next(reversed(shown))]
            said.append(" to ".join(dict.fromkeys(ends)))
    return ", ".join(said)
