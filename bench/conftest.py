"""Prints the tables that the benches measured, after pytest's own report."""

from __future__ import annotations

import os
from typing import Any

import torch

from bench import harness


def surroundings(load: float, cores: int, threads: int) -> str:
    """Say how busy the machine is; on a busy one CPU ratios measure waiting."""
    line = f"{threads} threads on {cores} cores, load {load:.1f}"
    if load <= cores:
        return line
    return f"{line}: too busy for CPU rows to mean a thing; wait, or set OMP_NUM_THREADS=1"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if harness.tables:
        cores = os.cpu_count() or 1
        terminalreporter.write_line(
            surroundings(os.getloadavg()[0], cores, torch.get_num_threads())
        )
    for title, rows in harness.tables:
        terminalreporter.write_sep("-", title)
        columns = [
            c
            for c in dict.fromkeys(key for row in rows for key in row)
            if c not in ("room", "case", "shape", "dtype", "versions", "rounds")
        ]
        cells = [columns] + [[_text(row.get(column, "")) for column in columns] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for line in cells:
            padded = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            terminalreporter.write_line("  ".join(padded))


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
