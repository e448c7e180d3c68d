"""Progress of anything longer than two seconds: a bar on a terminal, sparse plain lines elsewhere.

for batch in (bar := progress(batches, "SFT")):
    bar.show(loss=loss)

with progress(1000, "scoring") as bar:
    bar.advance(len(chunk), f1=f1)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from types import TracebackType
from typing import Any, Generic, SupportsFloat, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from rrgtrain.dist import ranks

T = TypeVar("T")

LINE_EVERY_SHARE = 0.1
LINE_EVERY_SECONDS = 15.0
# Tenths that fly by are not worth a line each.
LINE_GAP_SECONDS = 1.0


class Bar(Generic[T]):
    """One stretch of work; made by `progress`. Values shown are the last ones given."""

    def __init__(
        self,
        items: Iterable[T] | None,
        total: int | None,
        description: str,
        console: Console,
        clock: Callable[[], float],
        done: int = 0,
    ) -> None:
        self._items = items
        self.total = total
        self.description = description
        self.values: dict[str, float] = {}
        self.done = self._before = done
        self._clock = clock
        self._display: _Live | _Lines | _Silent = _Silent()
        if console.is_terminal:
            self._display = _Live(console)
        elif not console.quiet:
            self._display = _Lines(console)
        self._began = self._advanced_at = clock()

    def show(self, **values: SupportsFloat) -> None:
        """Sets live values, as in `show(reward=0.41)`; 0-d tensors are read here."""
        self.values.update({name: float(value) for name, value in values.items()})
        self._display.update(self)

    def advance(self, n: int = 1, **values: SupportsFloat) -> None:
        """Counts `n` more items done."""
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
        self._began = self._clock()
        self._display.start(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Work that failed ends with its error, not with a line that looks like its end. A loop
        # left early comes here as GeneratorExit, which is no failure.
        self._display.stop(self, failed=kind is not None and issubclass(kind, Exception))


def progress(
    work: Iterable[T] | int,
    description: str,
    *,
    done: int = 0,
    quiet: bool = False,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Bar[T]:
    """Progress over an iterable, or over a number of items counted by `advance`.

    On a terminal a bar with rate, remaining time and live values, on stderr; elsewhere a line
    about every tenth of the work or every 15 seconds. `done` of a number were done before, by a
    run that is resumed. `quiet` shows nothing, as on ranks other than 0.
    """
    shown = console or Console(stderr=True, quiet=quiet or not ranks.is_main())
    if isinstance(work, int):
        return Bar(None, work, description, shown, clock, done)
    total = len(work) if isinstance(work, Sized) else None
    return Bar(work, total, description, shown, clock)


class _Silent:
    def start(self, bar: Bar[Any]) -> None: ...
    def update(self, bar: Bar[Any]) -> None: ...
    def stop(self, bar: Bar[Any], *, failed: bool) -> None: ...


class _Lines:
    """Plain lines, for log files and CI."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told_at = 0.0
        self._told_done = 0
        self._told_anything = False

    def start(self, bar: Bar[Any]) -> None:
        self._told_at = bar.seconds

    def update(self, bar: Bar[Any]) -> None:
        gap = bar.seconds - self._told_at
        share = (bar.done - self._told_done) / bar.total if bar.total else 0.0
        tenth = share >= LINE_EVERY_SHARE and gap >= LINE_GAP_SECONDS
        if (tenth or gap >= LINE_EVERY_SECONDS) and bar.done != bar.total:
            self._tell(bar, f"ETA {_clock_time(_remaining(bar))}")

    def stop(self, bar: Bar[Any], *, failed: bool) -> None:
        if not failed:
            self._tell(bar, f"took {_clock_time(bar.seconds)}")

    def _tell(self, bar: Bar[Any], when: str) -> None:
        self._told_at, self._told_done = bar.seconds, bar.done
        count = f"{bar.done}/{bar.total} {bar.done / bar.total:.0%}" if bar.total else f"{bar.done}"
        parts = [bar.description, count, _rate(bar), when, _values(bar)]
        line = "  ".join(part for part in parts if part)
        # Not console.print: it would wrap a log line at 80 columns and read [x] as markup.
        self._console.file.write(line + "\n")
        self._console.file.flush()


class _Live:
    """A bar in the one live display of the process, so that nested work stacks up."""

    _shared: Progress | None = None
    _open: int = 0

    def __init__(self, console: Console) -> None:
        self._console = console
        self._task: TaskID | None = None

    def start(self, bar: Bar[Any]) -> None:
        if _Live._shared is None:
            _Live._shared = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                _RateColumn(),
                TimeRemainingColumn(compact=True, elapsed_when_finished=True),
                _ValuesColumn(),
                console=self._console,
            )
            _Live._shared.start()
        _Live._open += 1
        self._task = _Live._shared.add_task(bar.description, total=bar.total, bar=bar)

    def update(self, bar: Bar[Any]) -> None:
        if _Live._shared is not None and self._task is not None:
            _Live._shared.update(self._task, completed=bar.done)

    def stop(self, bar: Bar[Any], *, failed: bool) -> None:
        if _Live._shared is None:
            return
        _Live._open -= 1
        if _Live._open == 0:
            _Live._shared.stop()
            _Live._shared = None
        elif self._task is not None:
            # A finished inner bar makes room; the outermost stays on screen when all is done.
            _Live._shared.remove_task(self._task)
        self._task = None


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(_rate(task.fields["bar"]), style="dim")


class _ValuesColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(_values(task.fields["bar"]))


def _values(bar: Bar[Any]) -> str:
    return " ".join(f"{name}={value:.3g}" for name, value in bar.values.items())


def _rate(bar: Bar[Any]) -> str:
    if bar.rate is None:
        return ""
    if bar.rate < 1:
        return f"{1 / bar.rate:.3g} s/it"
    return f"{bar.rate:,.0f} it/s" if bar.rate >= 100 else f"{bar.rate:.3g} it/s"


def _remaining(bar: Bar[Any]) -> float | None:
    if bar.rate is None or bar.total is None:
        return None
    return max(bar.total - bar.done, 0) / bar.rate


def _clock_time(seconds: float | None) -> str:
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
