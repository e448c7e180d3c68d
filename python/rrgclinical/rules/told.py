"""The findings that a sentence has told of so far, for cues that look back."""

from __future__ import annotations

from collections.abc import Iterator

from rrgclinical.labels import SUPPORT_DEVICES, ClassId
from rrgclinical.rules.concepts import CONCEPTS
from rrgclinical.rules.mention import Draft

_KINDS = ("denied", "weakened", "removed", "out of sight", "diseases weakened")
_OF = [
    (
        "denied",
        "weakened",
        "removed" if SUPPORT_DEVICES in concept.states else "out of sight",
        *(("diseases weakened",) if concept.disease else ()),
    )
    for concept in CONCEPTS
]
"""The kinds of cue that reach a finding of each concept."""


class Told:
    """Drafts of a sentence by place; a cue reaches all from a place `low` on.

    A status never rises again, so what a cue of one kind has changed it need not visit a second
    time: each kind keeps the places it has not reached yet, and a sentence takes linear time
    however many cues look back. A structure, blank from the start, is never reached.
    """

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self._places: list[int] = []
        self._unreached: dict[str, list[int]] = {kind: [] for kind in _KINDS}

    def add(self, draft: Draft) -> None:
        """Put `draft` behind the others."""
        place = len(self.drafts)
        self.drafts.append(draft)
        if draft.status == ClassId.BLANK:
            return
        self._places.append(place)
        for kind in _OF[draft.concept]:
            self._unreached[kind].append(place)

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
        places = self._unreached[kind]
        while places and places[-1] >= low:
            draft = self.drafts[places.pop()]
            if draft.status != ClassId.BLANK:
                yield draft
