"""Counts the seconds of a loop by phase, over resumes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping


class Stopwatch:
    """`lap(phase)` counts the time since the last lap to a phase; `seconds` are the sums."""

    def __init__(
        self, phases: Iterable[str], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.seconds = dict.fromkeys(phases, 0.0)
        self._clock = clock
        self._at = clock()

    def lap(self, phase: str) -> float:
        """Returns the seconds counted."""
        now = self._clock()
        spent, self._at = now - self._at, now
        self.seconds[phase] += spent
        return spent

    @property
    def total(self) -> float:
        """The sum of all phases."""
        return sum(self.seconds.values())

    def load(self, seconds: Mapping[str, float]) -> None:
        """Go on from the sums of an earlier process.

        The time since the last lap counts nowhere.
        """
        self.seconds = {phase: seconds.get(phase, 0.0) for phase in self.seconds}
        self._at = self._clock()
