"""The findings that a sentence has told of so far, for cues that look back."""

from __future__ import annotations

from collections.abc import Iterator

from rrgclinical.labels import SUPPORT_DEVICES, ClassId
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.mention import Draft

_REACHED: dict[str, frozenset[int]] = {
    "denied": frozenset(range(len(CONCEPTS))),
    "weakened": frozenset(range(len(CONCEPTS))),
    "removed": frozenset(i for i, c in enumerate(CONCEPTS) if SUPPORT_DEVICES in c.states),
    "out of sight": frozenset(i for i, c in enumerate(CONCEPTS) if SUPPORT_DEVICES not in c.states),
    "diseases weakened": frozenset(i for i, c in enumerate(CONCEPTS) if c.disease),
}
"""The concepts that a cue of each kind reaches."""


class Told:
    """Drafts of a sentence by place; a cue reaches all from a place `low` on.

    A status never rises again, so what a cue of one kind has changed it need not visit a second
    time: each kind takes up new places when it looks and keeps those it has not reached, and a
    sentence takes linear time however many cues look back. A structure, blank, is never reached.
    """

    __slots__ = ("_places", "_taken", "_unreached", "drafts")

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self._places: list[int] = []
        self._unreached: dict[str, list[int]] = {}
        self._taken: dict[str, int] = {}

    def add(self, draft: Draft) -> None:
        """Put `draft` behind the others."""
        if draft.status != ClassId.BLANK:
            self._places.append(len(self.drafts))
        self.drafts.append(draft)

    def since(self, low: int) -> bool:
        """True when a finding stands at `low` or behind it."""
        return bool(self._places) and self._places[-1] >= low

    def last(self, low: int = 0) -> Draft | None:
        """The last finding, if it stands at `low` or behind it."""
        return self.drafts[self._places[-1]] if self.since(low) else None

    def deny(self, low: int, kind: str = "denied") -> None:
        """Make findings from `low` on negative: all, those "removed" or "out of sight"."""
        for draft in self._reach(kind, low):
            draft.status = ClassId.NEGATIVE

    def weaken(self, low: int, kind: str = "weakened") -> None:
        """Make positive findings from `low` on uncertain: all, or "diseases weakened"."""
        for draft in self._reach(kind, low):
            if draft.status == ClassId.POSITIVE:
                draft.status = ClassId.UNCERTAIN

    def forget(self, low: int) -> None:
        """Assert nothing of the findings from `low` on."""
        while self.since(low):
            self.drafts[self._places.pop()].status = ClassId.BLANK

    def _reach(self, kind: str, low: int) -> Iterator[Draft]:
        places, concepts = self._unreached.setdefault(kind, []), _REACHED[kind]
        for place in range(self._taken.get(kind, 0), len(self.drafts)):
            if self.drafts[place].concept in concepts:
                places.append(place)
        self._taken[kind] = len(self.drafts)
        while places and places[-1] >= low:
            draft = self.drafts[places.pop()]
            if draft.status != ClassId.BLANK:
                yield draft
