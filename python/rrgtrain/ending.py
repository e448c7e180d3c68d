"""Run a command, and say in one line how it ended."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

from rrgclinical.common.errors import cause_line, outside_line
from rrgclinical.common.shown import LONGEST_LINE, one_line, shortened
from rrgclinical.common.stop import INTERRUPTED, stopping
from rrgclinical.common.streams import lasting_output
from rrgtrain.errors import Stopped, UserError


def reported(command: Callable[[], int], *, ends_process: bool) -> int:
    """Run a command; return its exit status, and print an early end's reason.

    Signals stop it between two steps. `ends_process`: interrupts are ignored from its end on.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Torch's OpenMP spins for 300,000 turns before a thread sleeps, in which runs block each other.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # With AVX512-BF16 it tells of a package for 4-bit weights, which nothing here has.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    if "WORLD_SIZE" in os.environ:
        # of a connection that another rank has closed PyTorch would print a page of its stack
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        with lasting_output(), warnings.catch_warnings(), stopping.installed("rrgtrain"):
            warnings.showwarning = _one_line
            return _with_last_line(command)
    except KeyboardInterrupt:
        # the second one, which came while the first was told
        return INTERRUPTED
    except Stopped as stopped:
        return stopped.status
    finally:
        if ends_process:
            # An interrupt could only print a traceback over the last line.
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _with_last_line(command: Callable[[], int]) -> int:
    try:
        return command()
    except Stopped as stopped:
        _print_last_line(str(stopped), stopped)
        return stopped.status
    except Exception as error:
        stop = stopping.stop_in(error)
        if isinstance(stop, Stopped):  # a library was cut off, or something failed in tidying up
            line = shortened(f"{stop}; behind it {cause_line(error)}", LONGEST_LINE)
            _print_last_line(line, error)
            return stop.status
        line = str(error) if isinstance(error, UserError) else outside_line(error)
        line = shortened(line, LONGEST_LINE)
        if not line:
            raise  # any other is a bug, whose traceback is wanted
        if (ranks := _ranks()) is not None:
            ranks.refuse(one_line(line))
        _print_last_line(line, error)
        return 2
    except KeyboardInterrupt as interrupt:
        _print_last_line("interrupted", interrupt)
        return INTERRUPTED
    finally:
        if (ranks := _ranks()) is not None:
            ranks.close()


def _ranks() -> Any:
    """Return the module of that name, where a command has imported it."""
    return sys.modules.get("rrgpolicy.ranks.ranks")


def _print_last_line(line: str, error: BaseException) -> None:
    """Print the line once: rank 0 tells what all ranks know."""
    ranks = _ranks()
    if os.environ.get("RANK", "0") == "0":
        print(f"rrgtrain: {one_line(line)}", file=sys.stderr)
    elif ranks is not None and ranks.prints_last_line():
        print(f"rrgtrain: rank {ranks.rank()}: {one_line(line)}", file=sys.stderr)


def _one_line(message: Warning | str, *_: Any, **__: Any) -> None:
    if os.environ.get("RANK", "0") == "0":
        line = one_line(" ".join(str(message).split()))
        print(f"rrgtrain: warning: {line}", file=sys.stderr)
