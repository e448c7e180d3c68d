"""Tell a calcified nodule, which counts for no observation, from other nodules.

The annotators of CheXpert (Irvin et al., 2019) ignore granulomas and calcified nodules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rrgclinical.rules.concepts import CONCEPT_ID
from rrgclinical.rules.cues import Cue
from rrgclinical.rules.lexicon import Event

GRANULOMA = CONCEPT_ID["granuloma"]
LESIONS = frozenset({CONCEPT_ID["lung lesion"], CONCEPT_ID["nodular opacity"]})
_ATTRIBUTES = frozenset({Cue.SIDE, Cue.ZONE, Cue.SEVERITY})
_BEFORE = frozenset({Cue.ASSERT, Cue.COMMA, Cue.PREDICATE})
_BEHIND = frozenset({Cue.PREPOSITION, Cue.FINITE, Cue.VERB, Cue.WHICH, Cue.COMMA, Cue.ASSERT})
_FAR = 10
"""Events between a nodule and the word that calls it calcified."""
_CALCIFIED = re.compile(r"(?:\b(\w+)[\s-]+)?\bcalcifi(?:ed|c)\b", re.IGNORECASE)
_DOUBTED = re.compile(r"\b(?:not|non|nor|partially|partly|incompletely|possibly)\b", re.IGNORECASE)
_INSIDE = re.compile(
    r"\s+(?:with|containing)\s+(?:(?:an?|central|dense|internal|coarse|popcorn|punctate|diffuse"
    r"|some|benign|appearing|complete|peripheral|eccentric)\s+){0,3}calcifications?\b",
    re.IGNORECASE,
)


def is_calcified_nodule(events: Sequence[Event], index: int, sentence: str) -> bool:
    """True when the lesion at `index` is a nodule that is called calcified."""
    event = events[index]
    if "nod" not in sentence[event.start : event.end].lower():
        return False
    return (
        _called_before(events, index, sentence)
        or _called_behind(events, index, sentence)
        or _INSIDE.match(sentence, event.end) is not None
    )


def _called_before(events: Sequence[Event], index: int, sentence: str) -> bool:
    start = index
    while start and index - start < _FAR:
        cues = events[start - 1].cues
        if not (cues & _ATTRIBUTES or cues <= _BEFORE):
            break
        start -= 1
    begin = events[start - 1].end if start else 0
    if start and events[start - 1].cues & {Cue.VERB, Cue.SUBJECT}:  # "aorta is calcified, nodule"
        comma = next((event for event in events[start:index] if Cue.COMMA in event.cues), None)
        begin = begin if comma is None else comma.end
    called = _CALCIFIED.search(sentence, begin, events[index].end)
    return called is not None and not _DOUBTED.fullmatch(called[1] or "")


def _called_behind(events: Sequence[Event], index: int, sentence: str) -> bool:
    listed = False
    for place in range(index + 1, min(len(events) - 1, index + _FAR)):
        event = events[place]
        cues = event.cues
        if "calcified" in sentence[event.start : event.end].lower():
            told = sentence[events[place - 1].end : event.start]
            if _DOUBTED.search(told) or Cue.PREDICATE not in cues:
                return False
            follower = events[place + 1]
            return follower.first > event.last or not follower.cues & {
                Cue.FINDING,
                Cue.SUBJECT,
                *_ATTRIBUTES,
            }
        if Cue.SUBJECT in cues and listed and not cues & _ATTRIBUTES:
            return False
        listed |= Cue.COMMA in cues
        if not (cues & {Cue.SUBJECT, *_ATTRIBUTES} or cues <= _BEHIND):
            return False
    return False
