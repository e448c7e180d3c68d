"""Order errors of a report by what they would mean for the patient.

Its weights are ours, no radiologist has set them; it is not GREEN and not CRIMSON.
"""

from __future__ import annotations

from rrgclinical.severity.alarm import (
    AXIS,
    SPAN,
    Counts,
    Validated,
    alarm,
    alarm_lines,
    rate_of,
)
from rrgclinical.severity.axes import AXES, axes
from rrgclinical.severity.judge import SeverityJudgement, judge
from rrgclinical.severity.reader import Severity
from rrgclinical.severity.reading import ReportReading, SidedFinding, read
from rrgclinical.severity.table import Significance, load_table
from rrgclinical.severity.words import caveat, in_words

__all__ = [
    "AXES",
    "AXIS",
    "SPAN",
    "Counts",
    "ReportReading",
    "Severity",
    "SeverityJudgement",
    "SidedFinding",
    "Significance",
    "Validated",
    "alarm",
    "alarm_lines",
    "axes",
    "caveat",
    "in_words",
    "judge",
    "load_table",
    "rate_of",
    "read",
]
