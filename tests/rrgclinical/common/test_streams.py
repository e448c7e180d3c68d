"""Nothing outside ends a command: terminals, pipes and logs that go, or never were."""

from __future__ import annotations

import errno
import io
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from rrgclinical.common import shown
from rrgclinical.common.arguments import whole_number
from rrgclinical.common.errors import UserError
from rrgclinical.common.progress import progress
from rrgclinical.common.shown import one_line, printable, redacted, shortened, shown_url
from rrgclinical.common.streams import Lasting, lasting
from rrgtrain import cli
from rrgtrain.cli import reported
from tests.rrgclinical.cases import table

GONE = (errno.EPIPE, errno.EIO, errno.ENOSPC)


class Breaking(io.StringIO):
    """A terminal or log that is gone after some writes."""

    def __init__(self, number: int, *, after: int = 0, terminal: bool = False) -> None:
        super().__init__()
        self.number, self.left, self.terminal, self.tries = number, after, terminal, 0

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.tries += 1
        self.left -= 1
        if self.left < 0:
            raise OSError(self.number, os.strerror(self.number))
        return super().write(text)

    def flush(self) -> None:
        if self.left < 0:
            raise OSError(self.number, os.strerror(self.number))


def test_a_stream_goes_quiet_at_once_and_stays_so() -> None:
    for number in GONE:
        for after in (0, 2):
            stream = Breaking(number, after=after)
            kept = lasting(stream)
            for _ in range(5):
                assert kept.write("line\n") == 5
                kept.flush()
            assert isinstance(kept, Lasting) and lasting(kept) is kept
            assert kept.failure is not None and kept.failure.errno == number
            assert stream.tries <= after + 1 and stream.getvalue() == "line\n" * after


def test_a_character_that_the_encoding_lacks_is_its_escape() -> None:
    # LC_ALL=C, and a file name of Latin-1: an en dash of the table ended a run with a traceback
    for code, line, written in (
        ("ascii", "micro-F1 \u2013 caf\xe9\n", b"micro-F1 \\u2013 caf\\xe9\n"),
        ("latin-1", "\u2013 \xe9\n", b"\\u2013 \xe9\n"),
        # a character map: its error names another encoding
        ("iso8859-2", "\xb1 \xe9\n", b"\\xb1 \xe9\n"),
        ("koi8-r", "\u2013 \u0434\n", b"\\u2013 \xc4\n"),
        ("utf-8", "report: bad\udcff \u2013\n", "report: bad\\udcff \u2013\n".encode()),
    ):
        bytes_ = io.BytesIO()
        stream = lasting(io.TextIOWrapper(bytes_, encoding=code))
        assert stream.write(line) == len(line)
        stream.writelines([line, "end"])
        stream.flush()
        assert bytes_.getvalue() == written * 2 + b"end"


def test_the_status_of_a_run_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> int:
        for step in (bar := progress(3, "rl")) and range(3):
            print("step", step)
            print("warning", file=sys.stderr)
            bar.advance()
        return cli._printed(0, leaves_files=True)

    for number in GONE:
        for name in ("stdout", "stderr"):
            with monkeypatch.context() as patch:
                patch.setattr(sys, name, Breaking(number))
                assert reported(run, ends_process=False) == 0, (number, name)


def test_what_a_listing_prints_must_arrive(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader that is gone has read enough; a full disk is one line and a status."""
    assert cli.main(["plan", "--json"]) == 0 and capsys.readouterr().out  # torch loads
    wanted = {errno.EPIPE: (0, ""), errno.ENOSPC: (2, "No space left"), errno.EIO: (2, "Input/out")}
    for words in (["keys"], ["recipes"], ["plan", "--json"]):
        for number, (status, told) in wanted.items():
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stdout", Breaking(number))
                assert cli.main(words) == status, (words, number)
            lines = capsys.readouterr().err.splitlines()
            assert len(lines) == bool(told), lines
            if told:
                assert lines[0].startswith(f"rrgtrain: standard output cannot be written: {told}")


def test_streams_that_were_closed_before_the_start_are_no_file_s(tmp_path: Path) -> None:
    """The next file opened would take number 1 or 2, and be written to by libraries."""
    saved = {number: os.dup(number) for number in (1, 2)}
    before = sys.stdout, sys.stderr

    def command() -> int:
        print("a line")
        with (tmp_path / "file").open("w") as file:
            assert file.fileno() > 2
            os.write(1, b"x")
            os.write(2, b"x")
        return 0

    try:
        for number in saved:
            os.close(number)
        sys.stdout = sys.stderr = None  # type: ignore[assignment]
        status = reported(command, ends_process=False)
    finally:
        for number, copy in saved.items():
            os.dup2(copy, number)
            os.close(copy)
        sys.stdout, sys.stderr = before
    assert status == 0 and (tmp_path / "file").read_bytes() == b""


def test_what_files_and_memory_refuse_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    outside = (errno.EACCES, errno.EROFS, errno.EIO, errno.EFBIG, errno.ENOSPC, errno.EDQUOT)
    errors: list[Any] = [
        OSError(number, os.strerror(number), "a/file")
        for number in (*outside, errno.ELOOP, errno.EISDIR)
    ]
    errors += [MemoryError(), RuntimeError("Symlink loop from 'a'")]
    errors += [RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes")]
    for error in errors:

        def command(error: Exception = error) -> int:
            raise error

        assert reported(command, ends_process=False) == 2
        told = capsys.readouterr().err
        assert told.startswith("rrgtrain: ") and told.count("\n") == 1, told
        assert not getattr(error, "filename", "") or "a/file" in told

    def bug() -> int:
        raise KeyError("a bug keeps its traceback")

    with pytest.raises(KeyError):
        reported(bug, ends_process=False)


# Test shown text: no secret of an address, no character that a terminal obeys.
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:8000/v1/", "http://h:8000/v1"),
        ("http://me:p@ss@h/v1?api-key=x#y", "http://h/v1"),
        ("me:pw@h/a@b", "h/a@b"),
    ],
)
def test_an_address_is_shown_without_what_it_carries(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize(("text", "shown"), table("secrets in a text"))
def test_addresses_in_a_text_lose_their_secrets(text: str, shown: str) -> None:
    assert redacted(text) == shown


def test_control_and_half_characters_become_escapes() -> None:
    text = "é\x1b[2J\x00\x85\u202e\u2028\t\n\r"
    assert printable(text) == "é\\x1b[2J\\x00\\x85\\u202e\\u2028\t\n\\r"
    assert one_line(text) == "é\\x1b[2J\\x00\\x85\\u202e\\u2028\\t\\n\\r"
    # the name of a directory that is no UTF-8; a page with it could not be written
    for show in (one_line, printable):
        assert show("bad\udcff \ud800") == "bad\\udcff \\ud800"


def test_no_part_of_a_secret_is_left_where_a_text_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "_written", {})
    shown.hide("sk-1234567890", "${oc.env:KEY}")
    assert "sk-" not in shortened(f"{'x' * 10}sk-1234567890{'x' * 90}", 30)
    for show in (one_line, printable, redacted):
        assert show("by sk-1234567890.") == "by ${oc.env:KEY}."


@pytest.mark.parametrize("value", ["1", 1.0, True, None, math.nan, -1, 0], ids=repr)
def test_a_count_is_a_whole_number(value) -> None:
    with pytest.raises(UserError, match="^edited is .*; wanted a whole number of at least 1$"):
        whole_number(value, "edited", 1)
    assert whole_number(np.int64(2), "edited", 1) == 2


# Plain lines where there is no terminal, a bar where there is one.
def plain() -> tuple[io.StringIO, Console]:
    out = io.StringIO()
    return out, Console(file=out, force_terminal=False, width=20)


def run(total: int, seconds_each: float, work: Callable[[int], None] = lambda i: None) -> list[str]:
    out, console = plain()
    now = [100.0]
    for i in (bar := progress(range(total), "SFT [val]", console=console, clock=lambda: now[0])):
        now[0] += seconds_each
        work(i)
        bar.show(f1=i / total)
    assert bar.done == total
    return out.getvalue().splitlines()


def test_a_line_every_tenth_with_rate_eta_and_values() -> None:
    lines = run(100, 1.0)
    assert len(lines) == 10
    assert lines[0] == "SFT [val]  10/100 10%  1 it/s  ETA 1:30  f1=0.09"
    assert lines[-1] == "SFT [val]  100/100 100%  1 it/s  took 1:40  f1=0.99"


def test_a_line_every_fifteen_seconds_of_slow_work() -> None:
    lines = run(4, 16.0)
    assert [line.split("  ")[1] for line in lines] == [f"{k}/4 {25 * k}%" for k in range(5)]
    assert "16 s/it" in lines[1] and "ETA 0:48" in lines[1]
    assert "ETA -:--" in lines[0]


def test_a_resume_with_fewer_steps_is_at_its_end() -> None:
    out, console = plain()
    with progress(8, "rl", done=9, console=console):
        pass
    assert out.getvalue().startswith("rl  9/9 100%")
