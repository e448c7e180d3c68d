"""Score files of reports: read, joined by id, judged beside a constant template, tabulated."""

from __future__ import annotations

from rrgclinical.scorecard.pairs import Pairs, pair_reports
from rrgclinical.scorecard.read import Columns, Reports, read_predictions, read_references

__all__ = [
    "Columns",
    "Pairs",
    "Reports",
    "pair_reports",
    "read_predictions",
    "read_references",
]
