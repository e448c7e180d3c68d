"""Gather the reports of many requests into batches for one scorer."""

from __future__ import annotations

import numbers
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from rrgclinical.common.arguments import check_pairs, is_real, share_of_steps
from rrgclinical.common.errors import UserError, cause_line

Scores = dict[str, list[float]]
# (R reports, R references, share of the steps done) -> name -> [R], "total" among them
Scorer = Callable[[Sequence[str], Sequence[str], float], Mapping[str, np.ndarray]]


class QueueFull(UserError):
    """No room for a request now: nothing of it was scored; send it again."""


class ScoringFailed(UserError):
    """The scorer raised on a request of its own; the line says why."""


@dataclass(frozen=True)
class BatchSettings:
    """Say when a batch is closed, and how much may wait.

    Raises UserError for numbers that cannot be.
    """

    largest: int = 256
    """Reports at which a batch is closed; a request is never cut, so one may be larger."""
    wait: float = 0.02
    """Seconds after its first report at which a batch is closed."""
    queue: int = 8192
    """Reports that may wait."""

    def __post_init__(self) -> None:
        counts = (self.largest, self.queue)
        whole = all(isinstance(n, numbers.Integral) and not isinstance(n, bool) for n in counts)
        real = is_real(self.wait)
        if not (whole and real) or min(counts) < 1 or not 0.0 <= self.wait <= 60.0:
            raise UserError(
                f"a batch of {self.largest} reports or {self.wait} s, a queue of {self.queue}; "
                "wanted at least 1 report in each, and a wait of 0 to 60 s"
            )


@dataclass
class Counts:
    """Count what has been done since the start; `Batcher.counts`."""

    requests: int = 0
    reports: int = 0
    batches: int = 0
    refused: int = 0
    failed: int = 0
    seconds: float = 0.0
    """In the scorer."""


@dataclass(frozen=True)
class _Request:
    reports: Sequence[str]
    references: Sequence[str]
    progress: float
    future: Future[Scores] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)


class Batcher:
    """Scores requests in one thread, in the order in which they came.

    Requests of one `progress` share a batch. Where a batch fails its requests are scored one by
    one, so that a report which the scorer cannot take costs its own request alone.
    """

    def __init__(self, score: Scorer, settings: BatchSettings | None = None) -> None:
        self.settings, self.counts = settings or BatchSettings(), Counts()
        self._score = score
        self._waiting: deque[_Request] = deque()
        self._size = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="scorer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return self._size

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._closed

    def submit(
        self, reports: Sequence[str], references: Sequence[str], progress: float = 1.0
    ) -> Future[Scores]:
        """Queue a request.

        Its future has one list for each score, as long as `reports`; or ScoringFailed.

        Raises QueueFull where it has no room now, UserError where it never has; TypeError and
        ValueError as `check_pairs` and `share_of_steps`, as one request shifts no other's scores.
        """
        reports, references = check_pairs(reports, references)
        request = _Request(reports, references, share_of_steps(progress))
        count, limit = len(reports), self.settings.queue
        with self._changed:
            if not self.alive:
                raise QueueFull("the service is stopping; ask again when it is back")
            if count > limit:
                raise UserError(
                    f"{count} reports in one request, and the queue holds {limit}; send fewer at a "
                    "time, or start the service with a larger --queue"
                )
            if self._size + count > limit:
                self.counts.refused += 1
                raise QueueFull(
                    f"{self._size} reports are waiting and the queue holds {limit}; send the "
                    f"{count} again later, or start the service with a larger --queue"
                )
            self._waiting.append(request)
            self._size += count
            self._changed.notify()
        return request.future

    def close(self) -> None:
        """Take no more requests, and score those that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while waited := self._next():
            # one that was given up is not scored, and its future takes no answer
            batch = [r for r in waited if r.future.set_running_or_notify_cancel()]
            if not batch:
                continue
            try:
                self._answer(batch, self._scored(batch))
            except BaseException as error:  # sys.exit() in a scorer, too: the thread goes on
                if len(batch) == 1:
                    self._fail(batch[0], error)
                    continue
                for request in batch:
                    try:
                        self._answer([request], self._scored([request]))
                    except BaseException as own:
                        self._fail(request, own)

    def _next(self) -> list[_Request]:
        """The next batch, when it is full or has waited; empty at the end."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return []
                self._changed.wait()
            closes = self._waiting[0].since + self.settings.wait
            while self._size < self.settings.largest and not self._closed:
                if (left := closes - time.monotonic()) <= 0:
                    break
                self._changed.wait(left)
            batch = [self._waiting.popleft()]
            size = len(batch[0].reports)
            while (
                self._waiting
                and self._waiting[0].progress == batch[0].progress
                and size + len(self._waiting[0].reports) <= self.settings.largest
            ):
                batch.append(self._waiting.popleft())
                size += len(batch[-1].reports)
            self._size -= size
            return batch

    def _scored(self, batch: list[_Request]) -> Mapping[str, np.ndarray]:
        reports = [text for request in batch for text in request.reports]
        references = [text for request in batch for text in request.references]
        began = time.perf_counter()
        try:
            scores = dict(self._score(reports, references, batch[0].progress))
        finally:
            self.counts.seconds += time.perf_counter() - began
        if "total" not in scores:
            raise ScoringFailed(f"the scorer gave no total, but {', '.join(map(str, scores))}")
        checked = {str(name): _finite(str(name), v, len(reports)) for name, v in scores.items()}
        self.counts.batches += 1
        return checked

    def _answer(self, batch: list[_Request], scores: Mapping[str, np.ndarray]) -> None:
        place = 0
        for request in batch:
            end = place + len(request.reports)
            own = {name: values[place:end].tolist() for name, values in scores.items()}
            self.counts.requests += 1
            self.counts.reports += end - place
            request.future.set_result(own)
            place = end

    def _fail(self, request: _Request, error: BaseException) -> None:
        self.counts.failed += 1
        failure = ScoringFailed(f"{cause_line(error)}; nothing of this request was scored")
        request.future.set_exception(failure)


def _finite(name: str, values: object, count: int) -> np.ndarray:
    """Return scores as float64 `[count]`; ScoringFailed for anything but one number each."""
    scores = np.asarray(values)
    if scores.shape != (count,):
        raise ScoringFailed(f"{name} has shape {scores.shape} for {count}")
    # neither None nor false nor "0.5" is a score
    numeric = np.issubdtype(scores.dtype, np.integer) or np.issubdtype(scores.dtype, np.floating)
    bad = np.flatnonzero(~np.isfinite(scores)) if numeric else np.arange(count)
    if bad.size:
        first, shown = int(bad[0]), scores.tolist()[int(bad[0])]
        raise ScoringFailed(f"{name} of report {first} is {shown!r:.40}, no number")
    return scores.astype(np.float64)
