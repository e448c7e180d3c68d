"""`<think>` and `<report>` blocks (MRG-R1): what is scored, and the format reward."""

from __future__ import annotations

from typing import NamedTuple

THINK, REPORT = "think", "report"


class Blocks(NamedTuple):
    """think, report: text inside the first complete block of the name, None without one.

    format: the format reward of the whole text, one of 0, 1/4, 1/2, 3/4, 1.
    """

    think: str | None
    report: str | None
    format: float


def parse_blocks(text: str) -> Blocks:
    """Reads the blocks of a completion.

    A block is an opening tag and the first closing tag of its name after it, in lower case. The
    format reward (MRG-R1, section III, which leaves the partial credit open) is 1/4 where both
    blocks are present, and only then 1/4 more for each of: in order (`</think>` before
    `<report>`), balanced (each of the four tags exactly once), and neither block empty.
    """
    think, report = _span(text, THINK), _span(text, REPORT)
    value = 0.0
    if think is not None and report is not None:
        once = all(text.count(tag) == 1 for name in (THINK, REPORT) for tag in _tags(name))
        filled = all(text[a:b].strip() for a, b in (think, report))
        value = 0.25 * (1 + (think[1] < report[0]) + once + filled)
    return Blocks(_inside(text, think), _inside(text, report), value)


def report_of(text: str, blocks: str) -> str:
    """Cut the report from a completion: all of it, or its `<report>` block, else "".

    blocks: `reward.blocks`.
    """
    return parse_blocks(text).report or "" if blocks == "think_report" else text


def _tags(name: str) -> tuple[str, str]:
    return f"<{name}>", f"</{name}>"


def _span(text: str, name: str) -> tuple[int, int] | None:
    """Characters between the tags, for the first opening tag that is closed."""
    opening, closing = _tags(name)
    start = text.find(opening)
    if start < 0:
        return None
    start += len(opening)
    end = text.find(closing, start)
    return None if end < 0 else (start, end)


def _inside(text: str, span: tuple[int, int] | None) -> str | None:
    return None if span is None else text[span[0] : span[1]].strip()
