"""Count seconds: of a loop by phase, over resumes, and of blocks by name."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager


class Stopwatch:
    """`lap(phase)` counts the time since the last lap to a phase; `seconds` are the sums."""

    def __init__(self, phases: Iterable[str]) -> None:
        self.seconds = dict.fromkeys(phases, 0.0)
        self._at = time.perf_counter()

    def lap(self, phase: str) -> float:
        now = time.perf_counter()
        spent, self._at = now - self._at, now
        self.seconds[phase] += spent
        return spent

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def load(self, seconds: Mapping[str, float]) -> None:
        """Go on from the sums of an earlier process.

        The time since the last lap counts nowhere.
        """
        self.seconds = {phase: seconds.get(phase, 0.0) for phase in self.seconds}
        self._at = time.perf_counter()


class ExclusiveTimer:
    """Seconds per name; time inside an inner name is not counted to the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open = threading.local()
        self._lock = threading.Lock()

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        stack: list[float] = self._open.__dict__.setdefault("stack", [])
        stack.append(0.0)
        begin = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - begin
            inner = stack.pop()
            if stack:
                stack[-1] += took
            with self._lock:
                self.seconds[name] = self.seconds.get(name, 0.0) + took - inner
