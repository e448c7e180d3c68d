"""Offline reading of reports by tables and rules: no model, no download."""

from __future__ import annotations

from rrgclinical.rules.extractor import RulesExtractor
from rrgclinical.rules.labeller import RulesLabeller, says_normal
from rrgclinical.rules.plain import glued, plain_lines
from rrgclinical.rules.sentences import join_lines, split_sentences

__all__ = [
    "RulesExtractor",
    "RulesLabeller",
    "glued",
    "join_lines",
    "plain_lines",
    "says_normal",
    "split_sentences",
]
