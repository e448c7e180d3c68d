"""Write the page of a replication: verdict, table, figure and commands of each claim."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.replicate.claims import MEASURES
from experiments.replicate.figure import figure_of
from experiments.replicate.outcome import Outcome
from experiments.replicate.text import check_line
from rrgclinical.common.files import atomic_write
from rrgreport.page import rendered
from rrgreport.provenance import versions


def write_page(
    outcomes: Sequence[Outcome], path: Path, *, command: str, notes: Sequence[str]
) -> None:
    """Writes one HTML file that needs nothing else."""
    page = rendered(
        "experiments.replicate",
        "replicate.html.j2",
        command=command,
        notes=notes,
        measures=MEASURES,
        versions=", ".join(f"{k} {v}" for k, v in versions().items()),
        claims=[
            {
                "outcome": outcome,
                "figure": figure_of(outcome),
                "figured": MEASURES[outcome.claim.figure],
                "checks": [(check_line(check), check.outcome) for check in outcome.checks],
            }
            for outcome in outcomes
        ],
    )
    atomic_write(path, page)
