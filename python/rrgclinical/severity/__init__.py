"""A reward that orders errors by what they would mean for the patient; no model, no network.

Its weights are ours, no radiologist has set them; it is not GREEN and not CRIMSON.
"""

from __future__ import annotations

from rrgclinical.severity.axes import AXES, axes
from rrgclinical.severity.judge import Judgement, judge
from rrgclinical.severity.reader import Severity
from rrgclinical.severity.reading import Finding, Reading, read
from rrgclinical.severity.table import Significance, load_table
from rrgclinical.severity.words import in_words

CAVEAT = (
    "severity's weights are ours, no radiologist has set them; it is not GREEN, it is not CRIMSON."
)

__all__ = [
    "AXES",
    "CAVEAT",
    "Finding",
    "Judgement",
    "Reading",
    "Severity",
    "Significance",
    "axes",
    "in_words",
    "judge",
    "load_table",
    "read",
]
