"""Runs a function in a forked process with a limit on memory and on processor time."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def bounded(work: Callable[[], T], *, mib: int, seconds: int) -> T:
    """Return what `work` returns, with `mib` of memory more than here and `seconds` of a CPU."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(work, theirs, mib << 20, seconds))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        process.join()
        raise AssertionError(
            f"more than {mib} MiB or {seconds} s: ended by {process.exitcode}"
        ) from None
    finally:
        process.join()


def _run(work: Callable[[], T], answers: Connection, room: int, seconds: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    answers.send(work())
