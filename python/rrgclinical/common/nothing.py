"""Read as empty the markers that say that nothing is there: nan, NA, a dash.

pandas, NumPy, R, SQL, Excel, JavaScript and Python write such markers, and so do people. One list
serves the loaders of data sets and the scorecard, so that a missing report is never read as one.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

MARKERS = frozenset(
    ("nan", "nat", "na", "n/a", "n/a n/a", "n.a", "null", "nil", "none", "missing", "undefined", "")
) | {"\\n", "1.#ind", "1.#qnan"}
"""Markers in lower case, without brackets, quotes, signs around them and a full stop behind."""
DASHES = "-–—−.…·"
AROUND = "<>()[]{}'\"`#+-"
BLANKS = " \t\r\n\f\v\x1c\x1d\x1e\x1f\x85\xa0\xad\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"
BLANKS += "".join(map(chr, range(0x2000, 0x200E))) + "\u2060"
"""White space, and characters that nobody sees."""
LONGEST = 24
"""Characters of the longest text that is compared with the markers."""
SHOWN = 5
"""Markers that a line names; it counts the others."""


def is_nothing(text: str, *, dictated: bool = False) -> bool:
    """Tell a text that is blank, or a marker of nothing and no more.

    dictated: a full stop makes a word of the marker, as in "Comparison: None.", and it stays.
    """
    bare = text.strip(BLANKS)
    if len(bare) > LONGEST:
        return False
    if not bare.strip(DASHES + BLANKS):
        return True
    if not dictated:
        bare = bare.rstrip("." + BLANKS)
    return bare.casefold().strip(AROUND + BLANKS) in MARKERS


class NothingRead:
    """Reads texts, and counts those that a marker of nothing made empty."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        """Times that each marker, as written, stood in a column or section."""
        self.first = ""
        """Place of the first."""

    def read(self, value: Any, name: str, where: str, *, dictated: bool = False) -> Any:
        """Return a text stripped, "" for None, NaN and a marker, which is counted.

        A value that is no text, nor one of these, is returned as it is. name: the column or section
        that holds it. where: the place that the note tells of the first. dictated: as for
        `is_nothing`.
        """
        if value is None:
            return ""
        missing = value != value
        if not missing and not isinstance(value, str):
            return value
        if not missing and not is_nothing(value, dictated=dictated):
            return value.strip()
        marker = "NaN" if missing else value.strip(BLANKS)
        if marker:
            self.counts.setdefault(name, Counter())[marker] += 1
            self.first = self.first or where
        return ""

    def lines(self) -> list[str]:
        """Write how many texts were read as empty, which markers, and where; none for none."""
        if not self.counts:
            return []
        total = sum(markers.total() for markers in self.counts.values())
        lines = []
        for name, markers in self.counts.items():
            shown = ", ".join(f"{marker!r} {n}" for marker, n in markers.most_common(SHOWN))
            more = f" and {len(markers) - SHOWN} more" if len(markers) > SHOWN else ""
            lines.append(f"{name} {shown}{more}")
        return [
            f"{total} texts say that nothing is there and are read as empty: {'; '.join(lines)}; "
            f"the first in {self.first}"
        ]
