"""Apply an edit script to a report's text; the result splits into its sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rrgkern.edit_plan.types import Edit, Rule

Span = tuple[int, int]


# A sentence is a list marker, a body and a stop: editing and comparing tell them apart.
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


class Step(NamedTuple):
    """Text that one rule removed and added, without list markers and white space around."""

    rule: str
    removed: str
    added: str


class SplicedEdit(NamedTuple):
    """An edited report.

    Attributes:
        text: the report after all edits.
        first_changed: characters before this index are those of the report as it was: the start
            of the first text touched, or the report's length where text was only appended.
            A policy keeps its token ids up to here and re-encodes from here on.
        steps: one per edit, in order; a deletion that empties the report is followed by "fill".
    """

    text: str
    first_changed: int
    steps: list[Step]


def splice(
    report: str,
    sentences: Sequence[Span],
    reference: str,
    reference_sentences: Sequence[Span],
    script: Sequence[Edit],
) -> SplicedEdit:
    """Apply the edits of one report pair (`EditScript.of`) to the report's text.

    A sentence of the reference is put in without its list marker and with a full stop. In
    detail, a list number belongs to its place in the report:

    - a piece without letter or digit behind a sentence, as the second stop of "Effusion. .", goes
      with that sentence;
    - a replacement keeps the marker of its place and the white space around;
    - a deletion takes along the white space that follows, or that before it where it was the
      last; the numbers after it in its list go down. Text that follows it on its line without a
      marker of its own belongs to the same place and takes over its number;
    - an addition takes the next number where the last line belongs to a list, on a line of its own
      where the last place of the report as it was has one. It comes after one space, or straight
      after white space that ends the report; a number without a sentence at the end is taken.

    A sentence whose successor becomes another gets the full stop that it lacks. Every other
    character stays as it is. A report without sentences becomes the reference sentence; text in
    it that belongs to no sentence stays before it.

    Args:
        report: text of the edited report.
        sentences: character spans (start, end) of its sentences, in order, as they were when
            the plan was made; a list marker belongs to the sentence that it introduces.
        reference: text of the reference report.
        reference_sentences: character spans of its sentences.
        script: edits in the order of application.

    Raises:
        ValueError: spans overlap or leave the text, or an edit names a sentence that is not there.
    """
    check_spans("sentences", sentences, report)
    check_spans("reference_sentences", reference_sentences, reference)
    draft = _Draft(report, sentences)
    steps: list[Step] = []
    for number, (rule, i, j) in enumerate(script):
        new = ""
        if j >= 0:
            if j >= len(reference_sentences):
                raise ValueError(
                    f"edit {number} takes reference sentence {j}, wanted one of the "
                    f"{len(reference_sentences)} given"
                )
            new = reference[slice(*reference_sentences[j])]
            new = with_stop(new[len(list_marker(new).text) :])
        old = ""
        if rule in (Rule.CONFLICT, Rule.REPLACEMENT, Rule.DELETION, Rule.DELETION_OF_COPIES):
            if not 0 <= i < len(draft.spans):
                raise ValueError(
                    f"edit {number} changes sentence {i}, wanted one of the {len(draft.spans)} "
                    "there"
                )
            old = draft.sentence(i)[len(draft.marker(i).text) :]
        name = Rule(rule).name.lower()
        if rule in (Rule.CONFLICT, Rule.REPLACEMENT):
            draft.replace(i, new)
            steps.append(Step(name, old, new))
        elif rule in (Rule.DELETION, Rule.DELETION_OF_COPIES):
            copies = [i] if rule == Rule.DELETION else draft.copies(i)
            for k in reversed(copies):
                draft.delete(k)
            steps.append(Step(name, old, ""))
            if new:
                draft.append(new)
                steps.append(Step(Rule.FILL.name.lower(), "", new))
        elif rule in (Rule.ADDITION, Rule.FILL):
            draft.append(new)
            steps.append(Step(name, "", new))
        else:
            raise ValueError(f"edit {number} has rule {rule!r}, wanted one of {list(Rule)[1:]}")
    return SplicedEdit(draft.text, draft.first_changed, steps)


class _Draft:
    """A report under edit: its text, and the spans of the sentences as they stand."""

    def __init__(self, text: str, spans: Sequence[Span]) -> None:
        self.text, self.spans = text, [(start, end) for start, end in spans]
        self.tails = [self._tail(i) for i in range(len(spans))]
        self.first_changed = len(text)
        self.between = " "  # list places
        for i in range(len(self.spans)):
            if self.marker(i).text:
                gap = self._gap(i)
                before = gap[len(gap.rstrip()) :]
                self.between = before if "\n" in before else " "

    def _tail(self, i: int) -> int:
        """Count the characters behind sentence i that say nothing, white space at the end apart."""
        following = self.spans[i + 1][0] if i + 1 < len(self.spans) else len(self.text)
        piece = self.text[self.spans[i][1] : following].rstrip()
        return 0 if any(map(str.isalnum, piece)) else len(piece)

    def sentence(self, i: int) -> str:
        return self.text[slice(*self.spans[i])]

    def marker(self, i: int) -> Marker:
        return list_marker(self.sentence(i))

    def copies(self, i: int) -> list[int]:
        """List the sentences of the same body as sentence i."""
        bodies = [sentence_body(self.sentence(k)) for k in range(len(self.spans))]
        return [k for k, body in enumerate(bodies) if body == bodies[i]]

    def replace(self, i: int, new: str) -> None:
        """Put `new` behind the marker of sentence i."""
        marker = self.marker(i).text
        start, end = self.spans[i]
        low, high = start + len(marker), end + self.tails[i]
        self._put(low, high, _spaced(marker) + new)
        self.spans[i] = (start, low + len(_spaced(marker) + new))
        self.tails[i] = 0
        self._close(i - 1)

    def delete(self, i: int) -> None:
        """Take out sentence i; the rest of its list place takes over its marker."""
        (start, end), marker = self.spans[i], self.marker(i)
        end += self.tails[i]
        follows = i + 1 < len(self.spans)
        if marker.text and follows and self._goes_on(i + 1):
            self._put(start + len(marker.text), self.spans[i + 1][0], _spaced(marker.text))
            self.spans[i : i + 2] = [(start, self.spans[i + 1][1])]
            del self.tails[i]
            self._close(i - 1)
            return
        blank = len(self.text) - len(self.text[end:].lstrip())
        if follows:
            blank = min(blank, self.spans[i + 1][0])
        elif blank == len(self.text):
            start = len(self.text[:start].rstrip())
        del self.spans[i], self.tails[i]
        self._put(start, blank, "")
        if marker.number is not None:
            self._renumber(i, marker.number)
        if follows:
            self._close(i - 1)

    def append(self, new: str) -> None:
        """Add `new` at the end, as the next place where a list stands there."""
        if not self.text.strip():
            self._put(0, len(self.text), new)
        else:
            self._close(len(self.spans) - 1)
            space, marker = self._next_place()
            new = marker + _spaced(marker) + new
            end = len(self.text.rstrip())
            blank = self.text[end:]
            if blank and blank.count("\n") >= space.count("\n"):
                space, end = "", len(self.text)
            self._put(end, len(self.text), space + new)
        self.spans.append((len(self.text) - len(new), len(self.text)))
        self.tails.append(0)

    def _next_place(self) -> tuple[str, str]:
        """Return the white space before an added sentence, and its list marker."""
        place = last = len(self.spans) - 1
        if last < 0:
            return " ", ""
        if self.sentence(last).endswith(":"):
            return "\n\n", ""  # a heading
        while place and self._goes_on(place):
            place -= 1
        marker = self.marker(place)
        if not marker.text or not sentence_body(self.sentence(last)):
            return " ", ""  # no list, or a number that has no sentence yet
        return self.between, marker.of((marker.number or 0) + 1)

    def _goes_on(self, i: int) -> bool:
        """Return True when sentence i belongs to the list place of the one before."""
        gap = self._gap(i)
        return not (self.marker(i).text or gap.strip() or "\n" in gap)

    def _gap(self, i: int) -> str:
        """Return the text between sentence i and the one before it."""
        return self.text[self.spans[i - 1][1] + self.tails[i - 1] if i else 0 : self.spans[i][0]]

    def _renumber(self, i: int, number: int) -> None:
        """Number the places from sentence i to the list's end, from `number` on."""
        latest = number
        for k in range(i, len(self.spans)):
            marker = self.marker(k)
            if marker.number is None:
                continue
            if marker.number < latest:
                return  # another list
            latest = marker.number
            low = marker.text.index(str(marker.number))
            self._rewrite(k, low, low + len(str(marker.number)), str(number))
            number += 1

    def _close(self, i: int) -> None:
        """Give sentence i the full stop it lacks; headings and mere numbers get none."""
        if i < 0 or self.sentence(i).endswith(":") or not sentence_body(self.sentence(i)):
            return
        sentence = self.sentence(i)
        closed = with_stop(sentence)
        if closed != sentence:
            self._rewrite(i, len(closed) - 1, len(sentence), ".")

    def _rewrite(self, i: int, low: int, high: int, new: str) -> None:
        """Exchange characters low:high of sentence i."""
        start, end = self.spans[i]
        self._put(start + low, start + high, new)
        self.spans[i] = (start, end + len(new) - (high - low))

    def _put(self, start: int, end: int, new: str) -> None:
        """Exchange characters start:end of the text; the sentences after them move along."""
        if self.text[start:end] == new:
            return
        self.text = self.text[:start] + new + self.text[end:]
        self.first_changed = min(self.first_changed, start)
        shift = len(new) - (end - start)
        self.spans = [(a + shift, b + shift) if a >= end else (a, b) for a, b in self.spans]


def _spaced(marker: str) -> str:
    """Return the space a marker lacks before a sentence: "2.8 mm" would be a decimal."""
    return "" if not marker or marker[-1].isspace() else " "


def check_spans(name: str, spans: Sequence[Span], text: str) -> None:
    """Raise ValueError unless the spans lie in the text in order, none empty, none overlapping."""
    last = 0
    for k, (start, end) in enumerate(spans):
        if not last <= start < end <= len(text):
            raise ValueError(
                f"{name}[{k}] is ({start}, {end}), wanted {last} <= start < end <= {len(text)}"
            )
        last = end
