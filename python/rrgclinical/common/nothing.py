"""Read as empty the texts that say nothing: nan, NA, a dash, markup alone.

pandas, NumPy, R, SQL, Excel, JavaScript and Python write such markers, and so do people. One list
serves the loaders of data sets and the scorecard, so that a missing report is never read as one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from html import unescape
from typing import Any

from rrgclinical.common.shown import shortened

BLOCKS = "p|li|ul|ol|dl|dt|dd|div|tr|td|th|hr|table|tbody|thead|section|body|html|pre|h[1-6]"
BLOCKS += "|paragraph|list|item|caption|title|component|text|abstracttext|blockquote|center"
"""Each is a paragraph of its own."""
CELLS = "td|th|dd"
"""Each may stand behind another cell, in its row."""
WITHIN = "b|i|u|em|strong|small|sub|sup|wbr|mark|ins|code|abbr|cite|dfn|kbd|tt|var"
"""Part no word."""
APART = "span|font|a|content|linkhtml"
"""Part two words."""


MARKERS = frozenset(
    ("nan", "nat", "na", "n/a", "n.a", "null", "nil", "none", "missing", "undefined", "")
) | {"\\n", "1.#ind", "1.#qnan"}
PHRASES = frozenset(("not given", "not available", "not applicable", "not provided"))
TAKEN_OUT = frozenset(("redacted", "removed", "phi", "deidentified", "de-identified"))
"""Markers in lower case, without brackets, quotes, signs around them and a full stop behind."""
AROUND = "<>()[]{}'\"`#+-*"
BLANKS = " \t\r\n\f\v\x1c\x1d\x1e\x1f\x85\xa0\xad\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"
BLANKS += "".join(map(chr, range(0x2000, 0x2010))) + "\u2060"
"""White space, and characters that nobody sees."""
LONGEST = 200
"""Characters of the longest text that may be nothing, markup apart."""
SHOWN = 5
"""Markers that a line names; it counts the others."""
LONGEST_SHOWN = 40
"""Characters that are shown of one: markup alone may have many."""

_MAY_BE_MARKUP = frozenset("<&\\_")
# Tags by name: <NA> is a marker, and <clear> a word.
_MARKUP = re.compile(
    rf"</?(?:br|{BLOCKS}|{WITHIN}|{APART})(?:\s[^<>]*)?/?>|<!--[^<>]*-->"
    r"|(?-i:\\[nrt])|_x000[ad]_",
    re.IGNORECASE,
)
_EXCELS_ERROR = re.compile(
    r"#(?:NAME\?|N/A|GETTING_DATA|(?:VALUE|REF|DIV/0|NULL|NUM|SPILL|CALC|FIELD|BLOCKED|CONNECT|BUSY"
    r"|UNKNOWN)!)|Err:5[0-9]{2}",
    re.IGNORECASE,
)
# A NUL or half a character is a fault of the file, which its reader tells.
_BROKEN = re.compile("[\0\ud800-\udfff]")
_PARTS = re.compile(r"[\s,;|]+")


def is_nothing(text: str, *, dictated: bool = False) -> bool:
    """Tell a text that is blank, has no letter or digit, or holds markers alone.

    dictated: a full stop makes a word of the marker, as in "Comparison: None.", and it stays; so
    does "___" or "XXXX", a date or a name that was taken out.
    """
    bare = text.strip(BLANKS)
    if not _MAY_BE_MARKUP.isdisjoint(bare[:LONGEST]):
        bare = _MARKUP.sub(" ", unescape(bare)).strip(BLANKS)
    if len(bare) > LONGEST:
        return False
    if not any(map(str.isalnum, bare)):
        return not (_BROKEN.search(bare) or (dictated and "_" in bare))
    # "N / A" is one marker
    words = _PARTS.split("/".join(part.strip() for part in bare.split("/")))
    phrase = " ".join(words).casefold().strip(AROUND + BLANKS + (":" if dictated else ":."))
    return phrase in PHRASES or all(_is_marker(word, dictated=dictated) for word in words)


def check_references(references: Sequence[str | None]) -> None:
    """Raise ValueError for a reference that says nothing; None, one that is unknown, passes."""
    for place, text in enumerate(references):
        if text is not None and is_nothing(text):
            raise ValueError(
                f"references[{place}] is {text!r:.40}, and no report is right or wrong beside "
                "nothing; leave the pair out"
            )


def _is_marker(word: str, *, dictated: bool) -> bool:
    bare = word.strip(BLANKS + ":" if dictated else BLANKS + ":.")
    if not any(map(str.isalnum, bare)) or _EXCELS_ERROR.fullmatch(bare) or bare == "-1":
        return True
    bare = re.sub(r"\\+", r"\\", bare)  # "\\N", escaped once more
    marker = bare.casefold().strip(AROUND + BLANKS)
    taken_out = marker in TAKEN_OUT or (len(marker) > 3 and not marker.strip("x"))
    return marker in MARKERS or (taken_out and not dictated)


class NothingRead:
    """Reads texts, and counts those that a marker of nothing made empty."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        """Times that each marker, as written, stood in a column or section."""
        self.first = ""
        """Place of the first."""

    def read(self, value: Any, name: str, where: str, *, dictated: bool = False) -> Any:
        """Return a text stripped, "" for None, NaN and nothing, which is counted.

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
            self.count(marker, name, where)
        return ""

    def count(self, marker: str, name: str, where: str) -> None:
        self.counts.setdefault(name, Counter())[shortened(marker, LONGEST_SHOWN)] += 1
        self.first = self.first or where

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
