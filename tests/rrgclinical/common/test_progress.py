"""Plain lines where there is no terminal, a bar where there is one."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
import torch
from rich.console import Console

from rrgclinical.common.progress import progress, silenced


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def plain() -> tuple[io.StringIO, Console]:
    out = io.StringIO()
    return out, Console(file=out, force_terminal=False, width=20)


def run(total: int, seconds_each: float, work: Callable[[int], None] = lambda i: None) -> list[str]:
    out, console = plain()
    clock = Time()
    for i in (bar := progress(range(total), "SFT [val]", console=console, clock=clock)):
        clock.now += seconds_each
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
    assert [line.split("  ")[1] for line in lines] == [
        "0/4 0%",
        "1/4 25%",
        "2/4 50%",
        "3/4 75%",
        "4/4 100%",
    ]
    assert "16 s/it" in lines[1] and "ETA 0:48" in lines[1]
    assert "ETA -:--" in lines[0]


def test_fast_work_is_one_line() -> None:
    assert len(run(1000, 0.0001)) == 1


def test_no_control_characters_off_a_terminal() -> None:
    assert all(c.isprintable() for line in run(30, 2.0) for c in line)


def test_total_with_advance_and_tensor_values() -> None:
    out, console = plain()
    with progress(50, "scoring", console=console, clock=Time()) as bar:
        for _ in range(5):
            bar.advance(10, reward=torch.tensor(0.5))
    assert out.getvalue() == "scoring  50/50 100%  took 0:00  reward=0.5\n"
    with pytest.raises(TypeError, match="iterate progress"):
        next(iter(progress(3, "x", console=console)))


def test_unknown_and_empty_totals() -> None:
    out, console = plain()
    clock = Time()
    assert list(progress(iter("ab"), "files", console=console, clock=clock)) == ["a", "b"]
    assert list(progress([], "none", console=console, clock=clock)) == []
    assert out.getvalue() == "files  2  took 0:00\nnone  0  took 0:00\n"


def test_quiet_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert list(progress([1, 2], "rank 1", quiet=True)) == [1, 2]
    with silenced(), silenced(False):
        assert list(progress([1, 2], "rank 1")) == [1, 2]
    assert capfd.readouterr() == ("", "")
    with silenced(False):
        assert list(progress([1, 2], "rank 0")) == [1, 2]
    assert capfd.readouterr().err.startswith("rank 0  2/2 100%")


def test_bars_nest_on_a_terminal_and_the_display_ends() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)

    def interrupted() -> None:
        for i in (bar := progress(range(3), "outer [b]", console=console)):
            bar.show(reward=0.25)
            list(progress(range(2), "inner", console=console))
            if i == 1:
                raise KeyError

    with pytest.raises(KeyError):
        interrupted()
    text = out.getvalue()
    assert "outer [b]" in text and "inner" in text and "reward=0.25" in text
    before = len(out.getvalue())
    list(progress([1], "after", console=console))
    assert "after" in out.getvalue()[before:] and "outer" not in out.getvalue()[before:]


def test_a_resume_with_fewer_steps_is_at_its_end() -> None:
    out, console = plain()
    with progress(8, "rl", done=9, console=console):
        pass
    assert out.getvalue().startswith("rl  9/9 100%")
