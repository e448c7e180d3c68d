"""Word how a process has ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path


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
