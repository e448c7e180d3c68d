"""Lay out plain text in columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] | range) -> list[str]:
    """Columns of equal width, those in `right` flush right."""
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = []
        for i, (text, width) in enumerate(zip(row, widths, strict=True)):
            fill = " " * (width - cell_len(text))
            cells.append(fill + text if i in right else text + fill)
        lines.append("  ".join(cells).rstrip())
    return lines
