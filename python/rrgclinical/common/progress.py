"""Shows the progress of long work: a bar on a terminal, sparse plain lines elsewhere.

for batch in (bar := progress(batches, "SFT")):
    bar.show(loss=loss)

with progress(1000, "scoring") as bar:
    bar.advance(len(chunk), f1=f1)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, SupportsFloat, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rrgclinical.common.streams import lasting

T = TypeVar("T")

LINE_EVERY_SHARE = 0.1
LINE_EVERY_SECONDS = 15.0
# Tenths that fly by are not worth a line each.
LINE_GAP_SECONDS = 1.0
_silenced = False


@contextmanager
def silenced(quiet: bool = True) -> Iterator[None]:
    """Show no progress inside the block, as on ranks other than 0."""
    global _silenced
    before, _silenced = _silenced, _silenced or quiet
    try:
        yield
    finally:
        _silenced = before


class Bar(Generic[T]):
    """One stretch of work; made by `progress`. Values shown are the last ones given."""

    # The one live display of the process, in which nested work stacks up.
    _live: ClassVar[Progress | None] = None

    def __init__(
        self,
        items: Iterable[T] | None,
        total: int | None,
        description: str,
        console: Console,
        clock: Callable[[], float],
        done: int = 0,
    ) -> None:
        self._items, self._console, self._clock = items, console, clock
        # a resume may ask for fewer than were done
        self.total = None if total is None else max(total, done)
        self.description = description
        self.values: dict[str, float] = {}
        self.done = self._before = done
        self._task: Any = None
        self._begin()

    def _begin(self) -> None:
        self._began = self._advanced_at = self._line_at = self._clock()
        self._line_done = self.done

    def show(self, **values: SupportsFloat) -> None:
        """Set live values, as in `show(reward=0.41)`; 0-d tensors are read here."""
        self.values.update({name: float(value) for name, value in values.items()})
        if self._task is not None and Bar._live is not None:
            Bar._live.update(self._task, completed=self.done, **self._texts())
        elif not self._console.is_terminal:
            gap = self._clock() - self._line_at
            share = (self.done - self._line_done) / self.total if self.total else 0.0
            tenth = share >= LINE_EVERY_SHARE and gap >= LINE_GAP_SECONDS
            if (tenth or gap >= LINE_EVERY_SECONDS) and self.done != self.total:
                rest = max(self.total - self.done, 0) if self.total else None
                left = None if rest is None or self.rate is None else rest / self.rate
                self._line(f"ETA {_clock_time(left)}")

    def advance(self, n: int = 1, **values: SupportsFloat) -> None:
        self.done += n
        self._advanced_at = self._clock()
        self.show(**values)

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    @property
    def rate(self) -> float | None:
        """Items per second up to the last one done; None before the first."""
        taken, own = self._advanced_at - self._began, self.done - self._before
        return own / taken if own and taken > 0 else None

    def __iter__(self) -> Iterator[T]:
        if self._items is None:
            raise TypeError("progress(total) counts by advance(); iterate progress(iterable)")
        with self:
            for item in self._items:
                yield item
                self.advance()

    def __enter__(self) -> Bar[T]:
        self._begin()
        if self._console.is_terminal and not self._console.quiet:
            if Bar._live is None:
                Bar._live = Progress(
                    TextColumn("{task.description}", markup=False),
                    BarColumn(bar_width=24),
                    MofNCompleteColumn(),
                    TextColumn("{task.fields[rate]}", style="dim", markup=False),
                    TimeRemainingColumn(compact=True, elapsed_when_finished=True),
                    TextColumn("{task.fields[values]}", markup=False),
                    console=self._console,
                )
                Bar._live.start()
            self._task = Bar._live.add_task(
                self.description, total=self.total, completed=self.done, **self._texts()
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._task is not None and Bar._live is not None:
            if len(Bar._live.tasks) > 1:
                # A finished inner bar makes room; the outermost stays on screen when all is done.
                Bar._live.remove_task(self._task)
            else:
                Bar._live.stop()
                Bar._live = None
            self._task = None
        # Work that failed ends with its error, not with a line that looks like its end. A loop
        # left early comes here as GeneratorExit, which is no failure.
        elif not (self._console.is_terminal or (kind is not None and issubclass(kind, Exception))):
            self._line(f"took {_clock_time(self.seconds)}")

    def _texts(self) -> dict[str, Any]:
        rate, values = "", " ".join(f"{k}={v:.3g}" for k, v in self.values.items())
        if self.rate is not None and self.rate < 1:
            rate = f"{1 / self.rate:.3g} s/it"
        elif self.rate is not None:
            rate = f"{self.rate:,.0f} it/s" if self.rate >= 100 else f"{self.rate:.3g} it/s"
        return {"rate": rate, "values": values}

    def _line(self, when: str) -> None:
        if self._console.quiet:
            return
        self._line_at, self._line_done = self._clock(), self.done
        of_all = f"/{self.total} {self.done / self.total:.0%}" if self.total else ""
        rate, values = self._texts().values()
        parts = [self.description, f"{self.done}{of_all}", rate, when, values]
        # Not console.print: it would wrap a log line at 80 columns and read [x] as markup.
        self._console.file.write("  ".join(part for part in parts if part) + "\n")
        self._console.file.flush()


def progress(
    work: Iterable[T] | int,
    description: str,
    *,
    done: int = 0,
    quiet: bool = False,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Bar[T]:
    """Show progress over an iterable, or over a number of items counted by `advance`.

    On a terminal a bar with rate, remaining time and live values, on stderr; elsewhere a line
    about every tenth of the work or every 15 seconds. `done` of a number were done before, by a
    run that is resumed. `quiet` shows nothing. One that cannot be drawn any more goes quiet.
    """
    shown = console or Console(stderr=True, quiet=quiet or _silenced)
    shown.file = lasting(shown.file)
    if isinstance(work, int):
        return Bar(None, work, description, shown, clock, done)
    total = len(work) if isinstance(work, Sized) else None
    return Bar(work, total, description, shown, clock)


def _clock_time(seconds: float | None) -> str:
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
