"""Try on reports that their labels do not depend on how they are written.

A report says the same with its line ends as any system writes them, wrapped at any width, in any
case, and with any mark where a name or a date was taken out. A way that changes the labels of a
data set's own reports shows text that is read wrongly, before it is trained on.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from rrgclinical import build_labeller
from rrgclinical.rules import split_sentences

Write = Callable[[str], str]

MOST = 1_000
"""Reports that are tried: so many, evenly over the data set."""
WIDTHS = (40, 66, 80, 100)
LINE = 66
REMOVED = re.compile(r"\[\*\*.*?\*\*\]|_{3,}|\bX{4,}\b")
"""A name or a date that was taken out, as MIMIC-III, MIMIC-CXR and Open-i mark it."""
MARKS = ("___", "XXXX", "[**2101-1-1**]", "<DATE>", "<PHI>x</PHI>", "[redacted]", "{{date}}")
_ESCAPED = {"once": "\\", "twice": "\\E\\", "three times": "\\E\\E\\E\\"}
LINE_ENDS: dict[str, str] = {
    **{f"HL7 .br escaped {n}": f"{s}.br{s}" for n, s in _ESCAPED.items()},
    **{f"HL7 X0D X0A escaped {n}": f"{s}X0D{s}{s}X0A{s}" for n, s in _ESCAPED.items()},
    **{f"RTF {word}": f"\\{word} " for word in ("par", "line")},
    **{"carriage return": "\r", "CR and LF": "\r\n", "form feed": "\f", "Unicode": "\u2028"},
    **{"HTML": "<br/>", "HTML as text": "&lt;br&gt;", "XML": "&#10;", "backslash n": "\\n"},
    **{"Excel": "_x000D_\n", "quoted-printable": "=0D=0A", "pilcrow": "\xb6"},
}
"""What stands for a line end in a text, by the name of what writes it."""


def _ended_by(sign: str) -> Write:
    return lambda text: text.replace("\n", sign)


def as_rtf(text: str, slash: str = "\\") -> str:
    """Write a text as a document in RTF, with `slash` for each backslash."""
    said = re.sub(r"[\\{}]", r"\\\g<0>", text).replace("\n", "\\par\n")
    document = rf"{{\rtf1\ansi\deff0{{\fonttbl{{\f0 Arial;}}}}\f0\fs20 {said}\par }}"
    return document.replace("\\", slash)


CARRIERS: dict[str, Write] = {
    **{name: _ended_by(sign) for name, sign in LINE_ENDS.items()},
    "RTF document": as_rtf,
    "RTF document in HL7": lambda text: as_rtf(text, "\\E\\"),
    "HTML table": lambda text: f"<table><tr><td>{text.replace(chr(10), '<br>')}</td></tr></table>",
    "JSON string": json.dumps,
}
"""How systems write a text whose line ends are line feeds."""


def wrapped(text: str, width: int = LINE) -> str:
    """Break the lines of a text at blanks."""
    return textwrap.fill(text, width, break_on_hyphens=False)


def a_line_each(text: str) -> str:
    """Write a sentence a line, without the stops."""
    return "\n".join(text[start:end].rstrip(". ") for start, end in split_sentences(text))


class Changed(NamedTuple):
    """Count the reports whose labels a way of writing changes."""

    way: str
    tried: int
    changed: int
    first: int
    """Place among the reports of the first that changes; -1 for none."""


def try_properties(reports: Sequence[str]) -> Iterator[Changed]:
    """Read reports, at most `MOST` of them, in each way of writing."""
    places = list(range(0, len(reports), -(-len(reports) // MOST) or 1))
    marked = [place for place in places if REMOVED.search(reports[place])]
    yield from _tried(reports, marked, str, {f"taken out: {m}": _marked(m) for m in MARKS})
    ways: dict[str, Write] = {f"{case.__name__} case": case for case in (str.upper, str.lower)}
    for width in WIDTHS:
        ways[f"wrapped at {width}"] = partial(wrapped, width=width)
        ways[f"wrapped at {width}, capitals"] = partial(_in_capitals, width)
    yield from _tried(reports, places, str, ways)
    for shape, name in ((wrapped, "wrapped"), (a_line_each, "a line each")):
        ends = {f"{name}, by {carrier}": write for carrier, write in CARRIERS.items()}
        yield from _tried(reports, places, shape, ends)


def _in_capitals(width: int, text: str) -> str:
    return wrapped(text.upper(), width)


def _marked(mark: str) -> Write:
    return lambda text: REMOVED.sub(lambda _: mark, text)


def _tried(
    reports: Sequence[str], places: Sequence[int], shape: Write, ways: Mapping[str, Write]
) -> Iterator[Changed]:
    """Read the reports at `places` as `shape` writes them, and then in each of the ways."""
    labeller = build_labeller("rules")
    texts = [shape(reports[place]) for place in places]
    labels = labeller.label(texts)
    for way, write in ways.items():
        differ = (labeller.label([write(text) for text in texts]) != labels).any(axis=1)
        first = places[int(differ.argmax())] if differ.any() else -1
        yield Changed(way, len(texts), int(differ.sum()), first)
