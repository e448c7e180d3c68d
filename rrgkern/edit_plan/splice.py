"""Apply an edit script to the text of a report, touching nothing else in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rrgkern.edit_plan.types import Edit, Rule

Span = tuple[int, int]


class Step(NamedTuple):
    """What one rule took out of the text and what it put in; white space is left out of both."""

    rule: str
    removed: str
    added: str


class SplicedEdit(NamedTuple):
    """An edited report.

    Attributes:
        text: the report after all edits.
        first_changed: characters before this index are those of the report as it was: the start
            of the first sentence touched, or the report's length where text was only appended.
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

    A replacement keeps the white space around the sentence; a deletion takes along the white
    space that follows it; an addition comes after one space, or straight after white space that
    already ends the report. Every other character stays as it is. A report without sentences
    becomes the reference sentence; text in it that belongs to no sentence stays before it.

    Args:
        report: text of the edited report.
        sentences: character spans (start, end) of its sentences, in order, as they were when
            the plan was made.
        reference: text of the reference report.
        reference_sentences: character spans of its sentences.
        script: edits in the order of application.

    Raises:
        ValueError: spans overlap or leave the text, or an edit names a sentence that is not there.
    """
    check_spans("sentences", sentences, report)
    check_spans("reference_sentences", reference_sentences, reference)
    text, spans = report, [tuple(span) for span in sentences]
    first_changed = len(report)
    steps: list[Step] = []

    def put(start: int, end: int, new: str) -> None:
        nonlocal text, first_changed
        text = text[:start] + new + text[end:]
        first_changed = min(first_changed, start)
        shift = len(new) - (end - start)
        for k, (left, right) in enumerate(spans):
            if left >= end:
                spans[k] = (left + shift, right + shift)

    def append(new: str) -> None:
        if not text.strip():
            put(0, len(text), new)
        elif text[-1].isspace():
            put(len(text), len(text), new)
        else:
            put(len(text), len(text), " " + new)
        spans.append((len(text) - len(new), len(text)))

    def delete(i: int) -> None:
        start, end = spans.pop(i)
        after = len(text) - len(text[end:].lstrip())
        put(start, min(after, spans[i][0]) if i < len(spans) else after, "")

    for number, (rule, i, j) in enumerate(script):
        new = ""
        if j >= 0:
            if j >= len(reference_sentences):
                raise ValueError(
                    f"edit {number} takes reference sentence {j}, wanted one of the "
                    f"{len(reference_sentences)} given"
                )
            new = reference[slice(*reference_sentences[j])]
        old = ""
        if rule in (Rule.CONFLICT, Rule.REPLACEMENT, Rule.DELETION, Rule.DELETION_OF_COPIES):
            if not 0 <= i < len(spans):
                raise ValueError(
                    f"edit {number} changes sentence {i}, wanted one of the {len(spans)} there"
                )
            old = text[slice(*spans[i])]
        name = Rule(rule).name.lower()
        if rule in (Rule.CONFLICT, Rule.REPLACEMENT):
            start, end = spans[i]
            put(start, end, new)
            spans[i] = (start, start + len(new))
            steps.append(Step(name, old, new))
        elif rule in (Rule.DELETION, Rule.DELETION_OF_COPIES):
            copies = [k for k, span in enumerate(spans) if text[slice(*span)] == old]
            for k in reversed(copies if rule == Rule.DELETION_OF_COPIES else [i]):
                delete(k)
            steps.append(Step(name, old, ""))
            if new:
                append(new)
                steps.append(Step(Rule.FILL.name.lower(), "", new))
        elif rule in (Rule.ADDITION, Rule.FILL):
            append(new)
            steps.append(Step(name, "", new))
        else:
            raise ValueError(f"edit {number} has rule {rule!r}, wanted one of {list(Rule)[1:]}")
    return SplicedEdit(text, first_changed, steps)


def check_spans(name: str, spans: Sequence[Span], text: str) -> None:
    """Raise ValueError unless the spans lie in the text in order, none empty, none overlapping."""
    last = 0
    for k, (start, end) in enumerate(spans):
        if not last <= start < end <= len(text):
            raise ValueError(
                f"{name}[{k}] is ({start}, {end}), wanted {last} <= start < end <= {len(text)}"
            )
        last = end
