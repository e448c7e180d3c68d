"""Read what an exception leaves out: "no effusion except on the left"."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rrgclinical.labels import ClassId
from rrgclinical.rules.cues import Cue
from rrgclinical.rules.lexicon import Event
from rrgclinical.rules.lookaround import ATTRIBUTES, ENDS

_DOUBTS = frozenset({Cue.DOUBT, Cue.DOUBT_EITHER, Cue.DOUBTED_AT_END})
_TOLD = frozenset({Cue.ASSERT, Cue.PREPOSITION, Cue.PRONOUN, Cue.SUBJECT, Cue.VERB, Cue.FINITE})
# An amount, and words that name nothing; another word may be another finding's.
_AMOUNTS = (
    "amount amounts bit hint little sliver pocket component remnant residual residue residuum"
    " rim layer quantity volume patch area areas focus foci spot streak trickle touch"
    " suggestion strip portion region side sides lobe"
)
_FILLERS = (
    "a an the for some very what may be this that its only just perhaps about mere most seen"
    " there is was and or apparent new single solitary few isolated focal localized patchy"
    " thin rather laterally medially posteriorly anteriorly inferiorly superiorly apically"
    " basally peripherally centrally posterior anterior lateral medial dependent dependently"
)
_WORD = re.compile(r"[^\W_]+")


def read_exception(events: Sequence[Event], index: int, sentence: str) -> int:
    """The status that the exception cue at `index` gives a finding denied before it.

    BLANK where its words name another finding, or nothing: they then say nothing of the denied one.
    """
    told, amounts = False, frozenset(_AMOUNTS.split())
    known = amounts.union(_FILLERS.split())
    doubtful = "possible" in sentence[events[index].start : events[index].end].lower()
    before = events[index]
    for place in range(index + 1, len(events)):
        event = events[place]
        words = _WORD.findall(sentence[before.end : event.start].lower())
        if not known.issuperset(words):
            return ClassId.BLANK
        told |= not amounts.isdisjoint(words)
        cues = event.cues
        if cues & ENDS:
            break
        if cues & ATTRIBUTES or Cue.PRONOUN in cues:
            told = True
        elif cues & _DOUBTS:
            doubtful = True
        elif not cues <= _TOLD:
            return ClassId.BLANK
        told |= Cue.SUBJECT in cues
        before = event
    if not told:
        return ClassId.BLANK
    return ClassId.UNCERTAIN if doubtful else ClassId.POSITIVE
