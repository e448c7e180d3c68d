"""Score files of reports: read, joined by id, judged beside a constant template, tabulated."""

from __future__ import annotations

from rrgclinical.scorecard.card import (
    CardSettings,
    Scorecard,
    SystemReading,
    defined,
    joined_truth,
    scorecard,
)
from rrgclinical.scorecard.pairs import Pairs, pair_reports
from rrgclinical.scorecard.read import (
    Columns,
    Reports,
    read_predictions,
    read_references,
    read_systems,
)
from rrgclinical.scorecard.rows import read_rows, require_length
from rrgclinical.scorecard.tables import (
    FILES,
    as_csv,
    as_json,
    as_latex,
    as_text,
    first_rows,
    foot,
    headline,
    interval_kind,
    read_card,
    report_rows,
    tables,
    write_card,
)

__all__ = [
    "FILES",
    "CardSettings",
    "Columns",
    "Pairs",
    "Reports",
    "Scorecard",
    "SystemReading",
    "as_csv",
    "as_json",
    "as_latex",
    "as_text",
    "defined",
    "first_rows",
    "foot",
    "headline",
    "interval_kind",
    "joined_truth",
    "pair_reports",
    "read_card",
    "read_predictions",
    "read_references",
    "read_rows",
    "read_systems",
    "report_rows",
    "require_length",
    "scorecard",
    "tables",
    "write_card",
]
