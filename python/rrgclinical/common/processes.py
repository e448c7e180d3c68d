"""Word how a process has ended, and keep a worker quiet whose parent has."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import TracebackType


def exit_text(status: int) -> str:
    """Word a wait status: a signal by its name, or a number."""
    if not os.WIFSIGNALED(status):
        return f"ended with status {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    why = ", as the kernel does where memory runs out" if number == signal.SIGKILL else ""
    return f"killed by {name}{why}"


def how_it_ended(process: int) -> str:
    """Word how a process has ended.

    "ended" where it is there still, or its parent has waited for it."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "ended"
    return exit_text(int(fields[-1])) if fields[0] == "Z" else "ended"


def unless_hung_up(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Be a worker's `sys.excepthook`: print an error, but not that its parent has hung up.

    A thread of multiprocessing hands tensors on and prints by this hook what it meets: a parent
    that is stopped while it takes one is no fault.
    """
    if not isinstance(error, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)
