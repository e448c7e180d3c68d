"""Order errors of a report by what they would mean for the patient.

Its weights are ours, no radiologist has set them; it is not GREEN and not CRIMSON.
"""

from __future__ import annotations

from rrgclinical.severity.alarm import (
    AXES,
    AXIS,
    SPAN,
    AxesMonitor,
    Counts,
    Validated,
    alarm,
    alarm_lines,
    axes,
    rate_of,
)
from rrgclinical.severity.judge import Severity, SeverityJudgement, in_words, judge
from rrgclinical.severity.reading import read
from rrgclinical.severity.table import caveat, load_table

__all__ = [
    "AXES",
    "AXIS",
    "SPAN",
    "AxesMonitor",
    "Counts",
    "Severity",
    "SeverityJudgement",
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
