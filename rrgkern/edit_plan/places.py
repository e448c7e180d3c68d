"""Sentence = list marker, body, stop: the parts that editing and comparing tell apart."""

from __future__ import annotations

import re
from typing import NamedTuple

# "1.", "2)", "(3)" before white space, a letter or nothing, so that "1.5 cm" has none; "-".
_AHEAD = r"[.)](?=\s|[^\W\d_]|$)\s*"
_MARKER = re.compile(rf"\(?(\d{{1,2}}){_AHEAD}(?:\(?\d{{1,2}}{_AHEAD})*|[-*\u2022]\s+")
_STOPPED = re.compile(r"[.!?][\"')\]]*$")


class Marker(NamedTuple):
    """The mark of a list place at the start of a sentence.

    Attributes:
        text: as it stands, with the white space that follows it; empty where there is none.
            Of several in a row, as in "2. 1. No edema", all; the first is that of the place.
        number: of the place; None for a bullet, or where there is no mark.
    """

    text: str
    number: int | None

    def of(self, number: int) -> str:
        """Make the mark of another place of the same list; a bullet stays."""
        if self.number is None:
            return self.text
        blank = self.text[len(self.text.rstrip()) :]
        return re.sub(r"\d+(.).*", rf"{number}\1", self.text.rstrip()) + blank


def list_marker(sentence: str) -> Marker:
    """Read the list marker that `sentence` starts with; empty text where none."""
    match = _MARKER.match(sentence)
    if match is None:
        return Marker("", None)
    return Marker(match[0], None if match[1] is None else int(match[1]))


def sentence_body(sentence: str) -> str:
    """Strip a sentence of its list marker, stop and dangling comma at the end.

    Sentences of equal body are equal to the planner: "2. No edema." in a list and "No edema".
    """
    return sentence[len(list_marker(sentence).text) :].rstrip(" \t\n.,;:")


def with_stop(sentence: str) -> str:
    """End `sentence` with a full stop where it lacks one, in place of a comma."""
    return sentence if _STOPPED.search(sentence) else sentence.rstrip(" \t\n,;:") + "."
