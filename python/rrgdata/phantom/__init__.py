"""Procedural radiographs that show what their reports say, from a seed."""

from __future__ import annotations

from rrgdata.phantom.case import Case, Finding, sample_case
from rrgdata.phantom.config import PhantomConfig
from rrgdata.phantom.text import write_report
from rrgdata.phantom.write import phantom_reports, write_phantom

__all__ = [
    "Case",
    "Finding",
    "PhantomConfig",
    "phantom_reports",
    "sample_case",
    "write_phantom",
    "write_report",
]
