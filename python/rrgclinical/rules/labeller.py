"""The 14 observations read by rules."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from rrgclinical.common.arguments import check_reports
from rrgclinical.labels import NO_FINDING, OBSERVATIONS, SUPPORT_DEVICES, ClassId
from rrgclinical.rules.assertion import read_sentence
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.plain import plain
from rrgclinical.rules.sentences import split_plain

_RANK = {ClassId.BLANK: 0, ClassId.NEGATIVE: 1, ClassId.UNCERTAIN: 2, ClassId.POSITIVE: 3}
_DENIED = _RANK[ClassId.NEGATIVE]
_OF_RANK = np.array([ClassId.BLANK, ClassId.NEGATIVE, ClassId.UNCERTAIN, ClassId.POSITIVE])
_RANKS = tuple(_RANK[ClassId(status)] for status in range(4))
_DENIAL = r"\b(?:no|nil|zero|nothing|without|negative(?:\s+for)?)"
_WORD = r"(?!(?:history|known|prior|previous|comparison|change|distress)\b)[\w/-]+\s+"
_AMISS = r"(?:acute|active|abnormal\w*|injur\w+|process\w*|patholog\w+|disease|findings?|lesions?)"
_NORMAL = r"(?:normal|unremarkable|negative|clear|wnl|within\s+normal\s+(?:limits?|range)|nad)"
# Words that name nothing but the examination, or how sure its reader is.
_FILLER = (
    r"(?:otherwise|essentially|overall|grossly|largely|entirely|completely|basically|all|is|are|was"
    r"|appears?|remains?|the|this|an?|of|for|age|and|in|to|stable|chest|exam(?:ination)?|study|film"
    r"|radiographs?|x[\s-]?rays?|cxr|views?|appearances?|impression|conclusion|opinion|findings?"
    r"|report|result|everything|portable|frontal|lateral|ap|pa|two|single|\d{1,2})"
)
_SUMMARY = re.compile(
    rf"{_DENIAL}\s+(?:{_WORD}){{0,5}}?{_AMISS}\b(?!\s+(?:\w+\s+){{0,2}}?(?:change|distress|complaint))"
    rf"|^\W*(?:{_FILLER}\W+){{0,8}}{_NORMAL}(?:\W+{_FILLER}){{0,8}}\W*$"
    rf"|{_DENIAL}\s+(?:of\s+note|significant|focal|remarkable)\s*(?:[.;,]|$)"
    rf"|\botherwise\s+{_NORMAL}\b",
    re.IGNORECASE,
)


class RulesLabeller:
    """Deterministic labels in CheXbert's ids, without a model. Not CheXbert, and not named so.

    Per observation over the sentences of a report: positive > uncertain > negative > blank, as
    chexpert-labeler (Irvin et al., 2019) aggregates. No Finding is positive iff nothing outside
    Support Devices is positive or uncertain and a sentence says so: it denies a finding, calls a
    structure normal, or sums up ("unremarkable"). A report that says nothing is blank throughout.
    """

    def label(self, reports: Sequence[str]) -> np.ndarray:
        """int8 `[R, 14]`. TypeError names the first report that is not a str."""
        texts = check_reports(reports)
        ranks = np.zeros((len(texts), len(OBSERVATIONS)), dtype=np.int8)
        for row, text in zip(ranks, texts, strict=True):
            _label(text, row)
        return _OF_RANK.astype(np.int8)[ranks]


def _label(text: str, ranks: np.ndarray) -> None:
    best = [0] * len(OBSERVATIONS)
    doubtful = _RANK[ClassId.UNCERTAIN]
    text, spans = split_plain(text)
    denied = False
    for start, end in spans:
        for mention in read_sentence(text[start:end]):
            concept = CONCEPTS[mention.concept]
            rank = _RANKS[mention.status]
            denied |= rank == _DENIED
            for column in concept.states:
                best[column] = max(best[column], rank)
            for column in concept.suggests:
                best[column] = max(best[column], min(rank, doubtful))
    found = max(best[:SUPPORT_DEVICES]) >= doubtful  # it and No Finding are the last columns
    if not found and (denied or any(sums_up(text[start:end]) for start, end in spans)):
        best[NO_FINDING] = _RANK[ClassId.POSITIVE]
    ranks[:] = best


def says_normal(sentence: str) -> bool:
    """True where a finding is denied, a structure called normal, or a phrase sums up."""
    if any(mention.status == ClassId.NEGATIVE for mention in read_sentence(sentence)):
        return True
    return sums_up(sentence)


def sums_up(sentence: str) -> bool:
    """True for a phrase that says of the whole that all is well ("unremarkable examination")."""
    return _SUMMARY.search(plain(sentence).replace("\n", " ")) is not None
