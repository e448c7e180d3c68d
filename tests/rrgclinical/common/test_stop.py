"""Signals: raised at once, or noted until the step is done; handlers given back."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from rrgclinical.common.stop import Stopping
from rrgtrain.errors import Stopped
from tests.rrgtrain.runs import as_from_a_shell


@pytest.fixture(autouse=True)
def _signals_of_a_shell() -> Iterator[None]:
    """The tests may run under nohup, or in the background of a script."""
    before = as_from_a_shell()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def stopping() -> Iterator[Stopping]:
    """Return one that has taken the signals, as in a command."""
    with (taken := Stopping()).installed("rrgtrain"):
        yield taken


def test_a_signal_is_raised_at_once_outside_a_step() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stopping = Stopping()
    with (
        pytest.raises(Stopped, match="stopped by SIGTERM") as caught,
        stopping.installed("rrgtrain"),
    ):
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.status == 75
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_warnings_of_batch_systems_are_as_sigterm() -> None:
    """Slurm's --signal=USR1@120 ends a process that does not take it."""
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGALRM):
        before = signal.signal(number, signal.SIG_IGN)  # where it is not taken, it ends the tests
        ignored, stopping = signal.getsignal(number), Stopping()
        with stopping.installed("rrgtrain"), stopping.deferred():
            signal.raise_signal(number)
            with pytest.raises(Stopped, match=f"stopped by {number.name}") as caught:
                stopping.check()
        assert caught.value.status == 75
        assert signal.signal(number, before) is ignored


def test_a_signal_waits_for_the_end_of_a_phase(capfd: pytest.CaptureFixture[str]) -> None:
    stopping = Stopping()
    reached = []
    with stopping.installed("rrgtrain"):
        with stopping.deferred():
            signal.raise_signal(signal.SIGTERM)
            reached.append("rest of the step")
            with pytest.raises(Stopped):
                stopping.check()
            with pytest.raises(Stopped), stopping.interruptible():
                reached.append("long work is not begun")
        assert reached == ["rest of the step"]
    stopping.check()  # the next command is not stopped by what stopped this one
    assert capfd.readouterr().err == "rrgtrain: SIGTERM: finishing the phase\n"


def test_long_work_inside_a_step_is_cut_off(stopping: Stopping) -> None:
    reached = []
    with stopping.deferred():
        with contextlib.suppress(Stopped), stopping.interruptible():
            signal.raise_signal(signal.SIGTERM)
            reached.append("never")
        signal.raise_signal(signal.SIGTERM)
        reached.append("deferred again")
    assert reached == ["deferred again"]


def test_a_library_that_swallows_it_does_not_lose_it(stopping: Stopping) -> None:
    with contextlib.suppress(Exception):
        signal.raise_signal(signal.SIGTERM)
    with stopping.deferred(), pytest.raises(Stopped):
        stopping.check()


def test_there_is_no_third_interrupt() -> None:
    stopping, before = Stopping(), signal.getsignal(signal.SIGINT)
    with stopping.installed("rrgtrain"):
        for kind in (Stopped, KeyboardInterrupt):
            with pytest.raises(kind):
                signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_closed_terminal_ends_the_step_as_sigterm_does(stopping, monkeypatch) -> None:
    def gone(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.write", gone)
    with stopping.deferred():
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(Stopped, match="stopped by SIGHUP") as caught:
            stopping.check()
    assert caught.value.status == 75


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stopping().installed("rrgtrain"):
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_and_nested_commands_leave_the_signals_alone() -> None:
    stopping = Stopping()
    seen = []

    def other() -> None:
        with stopping.installed("rrgtrain"):
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [before]
    with stopping.installed("rrgtrain"):
        ours = signal.getsignal(signal.SIGTERM)
        with stopping.installed("rrgtrain"):
            assert signal.getsignal(signal.SIGTERM) == ours
        assert signal.getsignal(signal.SIGTERM) == ours, "the inner one gives nothing back"
    assert signal.getsignal(signal.SIGTERM) == before


def test_what_was_noted_in_long_work_ends_it_as_soon_as_it_may(stopping: Stopping) -> None:
    reached = []
    with stopping.deferred():
        with contextlib.suppress(Stopped), stopping.interruptible():
            with stopping.deferred(), stopping.deferred():
                signal.raise_signal(signal.SIGTERM)
                reached.append("not cut in two")
            reached.append("never")
        with stopping.deferred():
            reached.append("deferred again")
    assert reached == ["not cut in two", "deferred again"]


def test_an_error_is_raised_and_not_the_signal_that_came_before_it(stopping: Stopping) -> None:
    def exchange() -> None:
        with stopping.interruptible(), stopping.deferred():
            signal.raise_signal(signal.SIGTERM)
            raise KeyError("all ranks agree on it")

    with pytest.raises(KeyError):
        exchange()


def test_a_second_interrupt_never_waits_whatever_came_between(stopping: Stopping) -> None:
    with stopping.deferred():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


class _Dying:
    """Gets a signal while it is destroyed."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


def _die_and_live_on(number: int, seconds: float = 10.0) -> None:
    _Dying(number)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(seconds)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_what_a_destructor_swallows_is_raised_behind_it(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    hook = sys.unraisablehook
    with Stopping().installed("rrgtrain"), pytest.raises(Stopped, match=number.name):
        _die_and_live_on(number)
    assert sys.unraisablehook is hook
    assert capfd.readouterr().err == "", "Python's page about the ignored one"


def _ends_otherwise() -> None:
    try:
        signal.raise_signal(signal.SIGTERM)
    except Stopped:
        raise ValueError("of another cause") from RuntimeError("the cause")


def test_a_stop_is_seen_behind_any_cause(stopping: Stopping) -> None:
    with pytest.raises(ValueError, match="of another cause") as caught:
        _ends_otherwise()
    assert isinstance(stopping.stop_in(caught.value), Stopped)
    circle = ValueError("its own cause")
    circle.__cause__ = circle
    assert stopping.stop_in(circle) is None
