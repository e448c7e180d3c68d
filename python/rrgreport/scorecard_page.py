"""Write the page of a scorecard: one HTML file with tables and reports."""

from __future__ import annotations

from collections.abc import Mapping

from rrgclinical import OBSERVATIONS, to_binary
from rrgclinical.scorecard import (
    Pairs,
    Scorecard,
    SystemReading,
    first_rows,
    foot,
    headline,
    tables,
)
from rrgclinical.severity import in_words
from rrgreport.page import rendered

SHOWN = 200
"""Studies of the page; predictions.jsonl holds all."""


def scorecard_page(card: Scorecard, pairs: Pairs, readings: Mapping[str, SystemReading]) -> str:
    """Render the page: headline, six rows, reports, then all tables and the notes.

    What is in a report stands there as text, never as markup.
    """
    studies = []
    for i, (key, references) in enumerate(zip(pairs.ids, pairs.references, strict=True)):
        if i == SHOWN:
            break
        reports = [
            (name, texts[i], _positive(readings[name], i), _reasons(readings[name], i))
            for name, texts in pairs.systems.items()
        ]
        studies.append((key, references, reports))
    return rendered(
        "rrgreport",
        "scorecard.html.j2",
        title=f"Scorecard of {', '.join(pairs.systems)}",
        headline=headline(card),
        first=first_rows(card),
        intervals=f"{card.settings.level:.0%} bootstrap intervals over studies",
        tables=list(tables(card)),
        foot=foot(card),
        studies=studies,
        left=len(pairs.ids) - len(studies),
    )


def _reasons(reading: SystemReading, row: int) -> str:
    return in_words(reading.reasons[row]) if reading.reasons else ""


def _positive(reading: SystemReading, row: int) -> list[str]:
    binary = to_binary(reading.labels[row : row + 1])[0]
    return [name for name, one in zip(OBSERVATIONS, binary, strict=True) if one]
