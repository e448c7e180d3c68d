"""Draw mean values as rows of dots in an SVG that stands alone."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import escape

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_LEFT, _WIDE, _ROW, _TOP = 250, 480, 18, 62


def dot_rows(title: str, values: Mapping[str, Mapping[str, float]]) -> str:
    """Draw values by term and row, a dot each.

    The axis reaches from the least, or 0, to 1 or more.
    """
    rows = list(dict.fromkeys(row for term in values.values() for row in term))
    every = [value for term in values.values() for value in term.values()]
    low, high = min(0.0, *every), max(1.0, *every)
    height = _TOP + _ROW * len(rows) + 26

    def x(value: float) -> float:
        return _LEFT + (value - low) / (high - low) * _WIDE

    parts = [_text(_LEFT, 18, title, "start")]
    for place, term in enumerate(values):
        colour = _COLOURS[place % len(_COLOURS)]
        at = _LEFT + 150 * place
        parts.append(f'<circle cx="{at}" cy="36" r="5" fill="{colour}"/>')
        parts.append(_text(at + 10, 40, term.rpartition(":")[2], "start"))
    for number, row in enumerate(rows):
        y = _TOP + _ROW * number
        parts.append(_text(_LEFT - 10, y + 4, row, "end"))
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + _WIDE}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        for place, (term, means) in enumerate(values.items()):
            if row in means:
                colour = _COLOURS[place % len(_COLOURS)]
                title = f"<title>{escape(term)}: {means[row]:.3f}</title>"
                parts.append(
                    f'<circle cx="{x(means[row]):.1f}" cy="{y}" r="4" fill="{colour}" '
                    f'fill-opacity=".8">{title}</circle>'
                )
    for value in (low, (low + high) / 2, high):
        parts.append(_text(x(value), height - 8, f"{value:.2g}", "middle"))
    width = max(_LEFT + _WIDE + 40, _LEFT + 150 * len(values))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="{escape(title)}">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _text(x: float, y: float, content: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(content)}</text>'
