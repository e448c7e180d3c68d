"""End on a signal or Ctrl-C, in a loop at the end of a phase.

`with stopping.installed(program):` takes the signals over for a command. From then on a signal
raises `Stopped`, but not inside `with stopping.deferred():`, where it is only noted and
`stopping.check()` raises it. A second Ctrl-C never waits, and there is no third: it would only cut
off the words with which the command ends.

Not all that is raised arrives: Python prints what a `__del__` or a callback raises and goes on, and
who catches `UserError` or any `Exception` may go on too. A stop that is no longer on its way is
raised again, until `stopping.arrived()` or the end of `installed`.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from rrgclinical.common.errors import Stopped

INTERRUPTED = 130
# Batch systems send one of them before a time limit: Slurm's --signal names which.
WARNINGS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
# Seconds between two looks for a stop that somebody has swallowed.
_AGAIN = 0.1


class Stopping:
    """Note the signals to this process; `stopping` is the one instance."""

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        self._requested_at = 0.0
        self._deferred = False
        self._cut = False
        self._interrupted = False
        self._installed = False
        self._armed = False
        self._reminded = False
        self._swallowed_interrupt = False
        self._reminding = threading.Lock()
        self.program = ""

    @contextmanager
    def installed(self, program: str) -> Iterator[None]:
        """Takes over WARNINGS, SIGHUP and SIGINT, and gives them back. Only in the main thread;
        elsewhere, and inside another `installed`, it does nothing. Under nohup SIGHUP stays
        ignored.

        program: whose name begins the line of a signal that is only noted.
        """
        if self._installed or threading.current_thread() is not threading.main_thread():
            yield
            return
        self.requested, self._deferred, self._installed = None, False, True
        self._cut = self._interrupted = self._swallowed_interrupt = False
        self.program = program
        taken = [*WARNINGS, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            taken.append(signal.SIGHUP)
        hook = sys.unraisablehook

        def unraisable(ignored: sys.UnraisableHookArgs) -> None:
            if not self._comes_again(ignored.exc_value):
                hook(ignored)

        before = {s: signal.signal(s, self._handle) for s in taken}
        sys.unraisablehook = unraisable
        try:
            yield
        finally:
            self.arrived()
            sys.unraisablehook = hook
            for number, handler in before.items():
                signal.signal(number, handler)
            self.requested, self._installed, self.program = None, False, ""

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Signals are noted and not raised, for what must not be cut in two.

        Inside `interruptible` one that was noted is raised at the end.
        """
        with self._set(True, self._cut):
            yield
        if self._cut and not self._deferred:
            self.check()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Signals are raised inside a deferred block, for long work that changes nothing."""
        with self._set(False, True):
            self.check()
            yield

    def waited(self) -> float | None:
        """Count the seconds since the first signal; None where none has come."""
        return None if self.requested is None else time.monotonic() - self._requested_at

    def arrived(self) -> None:
        """Raise the stop no more: the command ends, whatever the rest of it does."""
        self._armed = False
        with self._reminding:  # of one that is on its way the handler makes nothing
            self._armed = False

    def stop_in(self, error: BaseException | None) -> BaseException | None:
        """Find the stop by a signal that has led to `error`, None where none has."""
        while error is not None and not isinstance(error, Stopped | KeyboardInterrupt):
            error = error.__cause__ or error.__context__
        return None if self.requested is None else error

    def check(self) -> None:
        """Raises `Stopped` if a signal has come."""
        if self.requested is not None:
            raise self._stopped()

    @contextmanager
    def _set(self, deferred: bool, cut: bool) -> Iterator[None]:
        before = self._deferred, self._cut
        self._deferred, self._cut = deferred, cut
        try:
            yield
        finally:
            self._deferred, self._cut = before

    def _stopped(self) -> Stopped:
        assert self.requested is not None
        stopped = Stopped(f"stopped by {self.requested.name}")
        if self.requested is signal.SIGINT:
            stopped.status = INTERRUPTED
        self._arm()
        return stopped

    def _arm(self) -> None:
        """Begin to look after a stop."""
        if self._installed and not self._armed:
            self._armed = True
            # not a Thread: starting one takes locks, and a signal may come inside of anything
            _thread.start_new_thread(self._remind, ())

    def _remind(self) -> None:
        while True:
            time.sleep(_AGAIN)
            with self._reminding:
                if not self._armed:
                    return
                self._reminded = True
                # a signal, as only that wakes who waits for a socket
                main = threading.main_thread().ident
                assert main is not None
                signal.pthread_kill(main, signal.SIGTERM)

    def _comes_again(self, error: BaseException | None) -> bool:
        """Tell whether what Python is about to ignore is a stop, which will be raised again."""
        stop = self.stop_in(error)
        self._swallowed_interrupt |= isinstance(stop, KeyboardInterrupt)
        if stop is not None:
            self._arm()
        return stop is not None

    def _again(self) -> None:
        """Raise a stop that is neither on its way nor waited with."""
        if not self._armed or self.stop_in(sys.exception()) is not None:
            return
        if self._swallowed_interrupt:
            self._swallowed_interrupt = False
            raise KeyboardInterrupt
        if not self._deferred:
            raise self._stopped()

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._reminded and number == signal.SIGTERM:
            self._reminded = False
            self._again()
            return
        if self._interrupted and number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            raise KeyboardInterrupt
        self._interrupted |= number == signal.SIGINT
        if self.requested is None:
            self._requested_at = time.monotonic()
        self.requested = signal.Signals(number)
        if not self._deferred:
            raise self._stopped()
        if os.environ.get("RANK", "0") != "0":  # torchrun signals every rank
            return
        again = "; once more to stop at once" if number == signal.SIGINT else ""
        line = f"{self.program}: {self.requested.name}: finishing the phase{again}\n"
        # Not print: the signal may have come in the middle of one. After a SIGHUP the terminal is
        # gone, which must not end the step.
        with suppress(OSError):
            os.write(2, line.encode())


stopping = Stopping()
