"""End on a signal or Ctrl-C, in a loop at the end of a phase.

`with stopping.installed(program):` takes the signals over for a command. From then on a signal
raises `Stopped`, but not inside `with stopping.deferred():`, where it is only noted and
`stopping.check()` raises it. A second Ctrl-C never waits, and there is no third: it would only cut
off the words with which the command ends.

Not all that is raised arrives: Python prints what a `__del__` or a callback raises, and goes on.
Such a signal is sent once more, a moment later.
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
# Batch systems send one of them before a limit: Slurm's --signal names which; SIGXCPU is that of a
# limit on processor time.
WARNINGS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGALRM)
# Seconds after which a signal whose stop Python ignored is sent once more.
_AGAIN = 0.1


class Stopping:
    """Note the signals to this process; `stopping` is the one instance."""

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        self._deferred = False
        self._cut = False
        self._interrupted = False
        self._installed = False
        self._owed = False
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
        self._cut = self._interrupted = self._owed = False
        self.program = program
        taken = [*WARNINGS, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            taken.append(signal.SIGHUP)
        hook = sys.unraisablehook

        def unraisable(ignored: sys.UnraisableHookArgs) -> None:
            stop = self.stop_in(ignored.exc_value)
            if stop is None or self.stop_in(sys.exception()) is not None:
                hook(ignored)  # an error of its own, though it may be one behind a stop under way
            else:
                self._once_more(stop)

        before = {s: signal.signal(s, self._handle) for s in taken}
        sys.unraisablehook = unraisable
        try:
            yield
        finally:
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

    def stop_in(self, error: BaseException | None) -> BaseException | None:
        """Find the stop by a signal that has led to `error`, None where none has."""
        left, visited = [error] if self.requested is not None else [], set[int]()
        while left:
            one = left.pop()
            if isinstance(one, Stopped | KeyboardInterrupt):
                return one
            if one is not None and id(one) not in visited:
                visited.add(id(one))
                left += [one.__context__, one.__cause__]
        return None

    def check(self) -> None:
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
        self._owed = False
        stopped = Stopped(f"stopped by {self.requested.name}")
        if self.requested is signal.SIGINT:
            stopped.status = INTERRUPTED
        return stopped

    def _once_more(self, stop: BaseException) -> None:
        """Send the signal of `stop` again, later: what is raised here Python ignores as well."""
        assert self.requested is not None
        number = self.requested
        if isinstance(stop, KeyboardInterrupt):
            number = signal.SIGINT
            signal.signal(number, self._handle)  # which the second Ctrl-C took off
        elif number is signal.SIGINT:
            self._interrupted = False  # the same Ctrl-C is no second one
        self._owed = True
        # not a Thread: starting one takes locks, and a signal may come inside of anything
        _thread.start_new_thread(self._send, (number,))

    def _send(self, number: int) -> None:
        time.sleep(_AGAIN)
        main = threading.main_thread().ident
        # the signal itself and not `interrupt_main`, which wakes nobody who waits for a socket
        # not where the stop was raised by another way meanwhile, or the command has ended
        if self._owed and main is not None and signal.getsignal(number) == self._handle:
            signal.pthread_kill(main, number)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._interrupted and number == signal.SIGINT:
            self._owed = False
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            raise KeyboardInterrupt
        self._interrupted |= number == signal.SIGINT
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
