"""Tell of reports in another language than English, in RTF, and with glued statements."""

from __future__ import annotations

import re

from rrgclinical.common.nothing import LONGEST_SHOWN
from rrgclinical.common.rtf import is_rtf
from rrgclinical.common.shown import shortened
from rrgclinical.rules import glued

_ENGLISH = re.compile(r"\b(?:the|no|is|of|and|with)\b", re.IGNORECASE)
FEWEST = 10
"""Reports from which on their language is told."""
_WORD = re.compile(r"[^\W\d_]{2}")


class Wording:
    """Counts reports by the traits of their text."""

    def __init__(self) -> None:
        self.reports = self.foreign = self.rtf = 0
        self.glued: list[str] = []
        """The words at the first place of each report that glues statements."""

    def add(self, text: str) -> None:
        """Count a report as it was written; one without a word is none."""
        if _WORD.search(text) is None:
            return
        self.reports += 1
        self.rtf += is_rtf(text)
        self.foreign += _ENGLISH.search(text) is None
        if places := glued(text):
            before, after = text[: places[0]].split()[-1], text[places[0] :].split()[0]
            self.glued.append(shortened(before + after, LONGEST_SHOWN))

    def lines(self) -> list[str]:
        """Write a line for each trait that somebody should know of."""
        lines = []
        if self.reports >= FEWEST and 2 * self.foreign > self.reports:
            lines.append(
                f"{self.foreign} of {self.reports} reports have none of the words the, no, is, of, "
                "and, with: are they English? rules, CheXbert and RadGraph read no other language; "
                "translate them, or leave out the rewards and metrics that read them"
            )
        if self.rtf:
            lines.append(f"{self.rtf} reports are documents in RTF, of which the text is read")
        if self.glued:
            lines.append(
                f"{len(self.glued)} reports glue statements, as {self.glued[0]!r}, and are read "
                "with a line end there; what made the text dropped line ends or list items"
            )
        return lines
