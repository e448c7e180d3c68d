"""A finding as a sentence states it, while the sentence is read and after."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rrgclinical.labels import ClassId
from rrgclinical.rules.anatomy import Subject
from rrgclinical.rules.cues import Cue


class Mention(NamedTuple):
    """A finding as one sentence states it.

    concept: id. status: POSITIVE, NEGATIVE or UNCERTAIN; BLANK for an anatomy. start, end:
    characters of the sentence. side, zone, severity: indices into SIDES, ZONES, SEVERITIES.
    """

    concept: int
    status: int
    start: int
    end: int
    side: int
    zone: int
    severity: int


@dataclass(slots=True)
class Draft:
    """A mention still open to what follows it."""

    concept: int
    status: int
    start: int
    end: int
    attributes: list[tuple[Cue, int]] = field(default_factory=list)

    def close(self) -> Mention:
        return Mention(self.concept, self.status, self.start, self.end, *self._resolve())

    def _resolve(self) -> tuple[int, int, int]:
        if not self.attributes:
            return 0, 0, 0
        seen: dict[Cue, set[int]] = {Cue.SIDE: set(), Cue.ZONE: set(), Cue.SEVERITY: set()}
        for axis, value in self.attributes:
            seen[axis].add(value)
        sides, zones, severities = seen[Cue.SIDE], seen[Cue.ZONE], seen[Cue.SEVERITY]
        side = 0 if not sides else sides.pop() if len(sides) == 1 else 3
        zone = zones.pop() if len(zones) == 1 else 0
        # "No large effusion" denies the effusion, not its size.
        denied = self.status == ClassId.NEGATIVE
        severity = 0 if denied or not severities else max(severities)
        return side, zone, severity


@dataclass(slots=True)
class Named:
    """A structure waiting for its predicate."""

    subject: Subject
    first: int
    last: int
    start: int
    end: int
    attributes: list[tuple[Cue, int]]
