"""Prints the tables that the benches measured, after pytest's own report."""

from __future__ import annotations

from typing import Any

from bench import harness


def pytest_terminal_summary(terminalreporter: Any) -> None:
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
