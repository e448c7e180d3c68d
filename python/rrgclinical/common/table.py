"""Lines of a table as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Write rows as lines: names to the left, numbers to the right."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        fills = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [fill + cell for fill, cell in zip(fills, row, strict=True)]
        lines.append("  ".join([row[0] + fills[0], *cells[1:]]).rstrip())
    return lines
