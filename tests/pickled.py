"""Code that would run where a pickle is read as one."""

from __future__ import annotations

from typing import Any

RAN: list[str] = []


def run() -> None:
    RAN.append("run")


class Code:
    """Leave a word in RAN when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return run, ()
