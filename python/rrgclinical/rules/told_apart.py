"""Tell apart findings that share their words: by what stands beside them in the sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rrgclinical.rules.concepts import CONCEPT_ID, CONCEPTS
from rrgclinical.rules.cues import Cue
from rrgclinical.rules.lexicon import Event
from rrgclinical.rules.lookaround import ATTRIBUTES

_FRACTURE, _HEALED = CONCEPT_ID["fracture"], CONCEPT_ID["healed fracture"]
_ATELECTASIS, _COLLAPSE = CONCEPT_ID["atelectasis"], CONCEPT_ID["lobar collapse"]
_SUMMARY = CONCEPT_ID["acute cardiopulmonary abnormality"]
_BONE = CONCEPT_ID["bone abnormality"]
_BONES = CONCEPT_ID["bone"]
_SKELETON = frozenset({_BONES, CONCEPT_ID["soft tissue"]})
_OF_BONES = frozenset({"bone", "degeneration", "spine", "osteopenia"})

_OLD = r"(?:healed|old|remote|chronic|ancient|united|non\s?-?acute)"
# No word of another statement, and none that says the opposite, stands between.
_NOT_OLD = (
    r"(?:is|are|was|were|has|have|with|without|for|from|of|in|but|acute|recent|fresh|new|or|versus"
    r"|not|no|pain|disease)"
)
_OLD_BEFORE = re.compile(rf"\b{_OLD}\b(?:(?!\b{_NOT_OLD}\b)[^;:()])*\Z", re.IGNORECASE)
_OLD_BEHIND = re.compile(
    rf"\s*[,(]?\s*(?:well[\s-]+)?{_OLD}\b"
    rf"|[^;:.]*?\b(?:is|are|was|were|appears?|looks?|seems?|being|which|that)\s+"
    rf"(?:(?!not\b)[a-z]+[\s-]+){{0,4}}?{_OLD}\b",
    re.IGNORECASE,
)
_LUNG = r"(?:lobes?|lobar|lungs?|hemithorax|[lr][ulm]l)"
_COLLAPSED = re.compile(r"(?:.*\s)?collaps(?:e|ed|ing)s?\Z", re.IGNORECASE | re.DOTALL)
_LUNG_BEFORE = re.compile(
    rf"\b{_LUNG}(?:\s+(?:is|are|was|has|have|remains?|appears?|been|now|again|\w+ly))*\s*\Z",
    re.IGNORECASE,
)
_LUNG_BEHIND = re.compile(
    r"\s+(?:(?:of|in|involving|affecting|the|a|an|entire|whole|left|right|both|upper|middle|lower"
    rf"|most|much)\s+)*{_LUNG}\b",
    re.IGNORECASE,
)
_PARTIAL = re.compile(r"\b(?:partial(?:ly)?|sub\s?-?segmental)\s+(?:\w+\s+){0,2}\Z", re.IGNORECASE)
_OF_CHEST = re.compile(r"cardi|pulm|lung|thorac|chest|infiltrat|abdom", re.IGNORECASE)
_LISTED = {Cue.SUBJECT, Cue.AND, Cue.OR, Cue.COMMA, Cue.ASSERT, Cue.PREPOSITION, *ATTRIBUTES}
_ENDS = frozenset({Cue.BREAK, Cue.END})
# The annotators of CheXpert (Irvin et al., 2019) ignore granulomas and calcified nodules.
_GRANULOMA = CONCEPT_ID["granuloma"]
_LESIONS = frozenset({CONCEPT_ID["lung lesion"], CONCEPT_ID["nodular opacity"]})
_MAY_PRECEDE = frozenset({Cue.ASSERT, Cue.COMMA, Cue.PREDICATE})
_MAY_FOLLOW = frozenset({Cue.PREPOSITION, Cue.FINITE, Cue.VERB, Cue.WHICH, Cue.COMMA, Cue.ASSERT})
_FAR = 10
"""Events between a nodule and the word that calls it calcified."""
_CALCIFIED = re.compile(r"(?:\b(\w+)[\s-]+)?\bcalcifi(?:ed|c)\b", re.IGNORECASE)
_DOUBTED = re.compile(r"\b(?:not|non|nor|partially|partly|incompletely|possibly)\b", re.IGNORECASE)
_INSIDE = re.compile(
    r"\s+(?:with|containing)\s+(?:(?:an?|central|dense|internal|coarse|popcorn|punctate|diffuse"
    r"|some|benign|appearing|complete|peripheral|eccentric)\s+){0,3}calcifications?\b",
    re.IGNORECASE,
)


def told_apart(events: Sequence[Event], index: int, concept: int, sentence: str) -> int:
    """The concept that the finding at `index` is, where its words `concept` are of several."""
    if concept == _FRACTURE:
        return _HEALED if _is_old(events, index, sentence) else concept
    if concept == _ATELECTASIS:
        return _COLLAPSE if _is_of_lobe(events[index], sentence) else concept
    if concept == _SUMMARY:
        return _BONE if _is_of_bones(events, index, sentence) else concept
    if concept in _LESIONS:
        return _GRANULOMA if _is_calcified_nodule(events, index, sentence) else concept
    return concept


def _is_old(events: Sequence[Event], index: int, sentence: str) -> bool:
    """True for "old left rib fractures" and "rib fracture, which is healed"."""
    event = events[index]
    before = next((e.end for e in reversed(events[:index]) if Cue.FINDING in e.cues), 0)
    if _OLD_BEFORE.search(sentence, before, event.end):
        return True
    behind = next((e.start for e in events[index + 1 :] if Cue.FINDING in e.cues), len(sentence))
    return _OLD_BEHIND.match(sentence, event.end, behind) is not None


def _is_of_lobe(event: Event, sentence: str) -> bool:
    """True for "left upper lobe collapse", false for "partial collapse"."""
    said = sentence[event.start : event.end]
    if _COLLAPSED.match(said) is None or "segment" in said.lower():
        return False
    if _PARTIAL.search(sentence, 0, event.start):
        return False
    return bool(
        re.match(_LUNG, said, re.IGNORECASE)
        or _LUNG_BEFORE.search(sentence, 0, event.start)
        or _LUNG_BEHIND.match(sentence, event.end)
    )


def _is_calcified_nodule(events: Sequence[Event], index: int, sentence: str) -> bool:
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
        if not (cues & ATTRIBUTES or cues <= _MAY_PRECEDE):
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
                *ATTRIBUTES,
            }
        if Cue.SUBJECT in cues and listed and not cues & ATTRIBUTES:
            return False
        listed |= Cue.COMMA in cues
        if not (cues & {Cue.SUBJECT, *ATTRIBUTES} or cues <= _MAY_FOLLOW):
            return False
    return False


def _is_of_bones(events: Sequence[Event], index: int, sentence: str) -> bool:
    """True for "the bones are intact with no acute abnormality", if nothing else is named."""
    event = events[index]
    if _OF_CHEST.search(sentence, event.start, event.end):
        return False
    return _all_bones(_behind(events, index)) or _all_bones(_before(events, index))


def _behind(events: Sequence[Event], index: int) -> list[int]:
    """Structures that the finding at `index` is of ("no acute abnormality of the bones")."""
    named: list[int] = []
    for event in events[index + 1 :]:
        cues = event.cues
        if not cues & (_LISTED - {Cue.COMMA}) and (named or Cue.VERB not in cues):
            break  # but "in the visualized bones"
        named += _structures(event)
    follows = len(events) > index + 1 and Cue.PREPOSITION in events[index + 1].cues
    return named if follows else []


def _before(events: Sequence[Event], index: int) -> list[int]:
    """The structures named last before the finding at `index`."""
    named: list[int] = []
    for event in reversed(events[:index]):
        cues = event.cues
        if cues & _ENDS or (named and not cues & _LISTED):
            break
        if Cue.FINDING in cues and not any(
            role.cue == Cue.FINDING and CONCEPTS[role.value].family in _OF_BONES
            for role in event.roles
        ):
            break
        named += _structures(event)
    return named


def _structures(event: Event) -> list[int]:
    return [role.value.anatomy for role in event.roles if role.cue == Cue.SUBJECT]


def _all_bones(structures: Sequence[int]) -> bool:
    return _BONES in structures and _SKELETON.issuperset(structures)
