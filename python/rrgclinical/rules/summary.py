"""Tell which sentences say that all is well."""

from __future__ import annotations

import re

from rrgclinical.labels import ClassId
from rrgclinical.rules.assertion import read_sentence
from rrgclinical.rules.plain import plain

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
    rf"|\botherwise\s+{_NORMAL}\b",
    re.IGNORECASE,
)


def says_normal(sentence: str) -> bool:
    """True where a finding is denied, a structure called normal, or a phrase sums up."""
    if any(mention.status == ClassId.NEGATIVE for mention in read_sentence(sentence)):
        return True
    return sums_up(sentence)


def sums_up(sentence: str) -> bool:
    """True for a phrase that says of the whole that all is well ("unremarkable examination")."""
    return _SUMMARY.search(plain(sentence).replace("\n", " ")) is not None
