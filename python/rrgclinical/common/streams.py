"""Keep a run alive whose terminal, pipe or log file is gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast


class Lasting:
    """A text stream that goes quiet at the first write that fails.

    `failure` then says why. A character that its encoding lacks is written as its escape, as
    standard error does: a dash in a table is no reason to end a run. All else is the stream's own.
    What is written later by others to the same file descriptor, such as Python's last flush, goes
    nowhere as well.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if self.failure is None:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                # the error of a character map names no encoding that knows its characters
                code = getattr(self._stream, "encoding", None) or "ascii"
                self.write(text.encode(code, "backslashreplace").decode(code))
            except OSError as error:
                self._end(error)
        return len(text)

    def writelines(self, lines: Any) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        if self.failure is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._end(error)

    def _end(self, error: OSError) -> None:
        self.failure = error
        # its buffer holds what could not be written, and every later flush would try it again
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


def lasting(stream: Any) -> TextIO:
    """Wrap a stream as `Lasting`, once."""
    return cast(TextIO, stream if isinstance(stream, Lasting) else Lasting(stream))


@contextmanager
def lasting_output() -> Iterator[Lasting]:
    """Let standard output and error go quiet, not raise, inside the block; yields the output.

    One that was closed before the start goes nowhere: the next file opened would take its number,
    and be written to.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    before = sys.stdout, sys.stderr
    nowhere = open(os.devnull, "w", encoding="utf-8") if None in before else None  # noqa: SIM115
    out = cast(Lasting, lasting(sys.stdout or nowhere))
    sys.stdout, sys.stderr = cast(TextIO, out), lasting(sys.stderr or nowhere)
    try:
        yield out
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
        if nowhere is not None:
            nowhere.close()
