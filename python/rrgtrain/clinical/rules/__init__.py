"""Offline reading of reports by tables and rules: no model, no download."""

from __future__ import annotations

from rrgtrain.clinical.rules.extractor import RulesExtractor
from rrgtrain.clinical.rules.labeller import RulesLabeller
from rrgtrain.clinical.rules.sentences import split_sentences

__all__ = ["RulesExtractor", "RulesLabeller", "split_sentences"]
