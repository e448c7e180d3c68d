"""Read the boxes beside a report's sentences; hold those of its findings against a reference's.

A grounded report has a sentence's boxes before its full stop, `Small left effusion [55 40 98 80].`:
left, top, right, bottom in whole percent of the image's width and height. A finding is an entity
that is read as present in a sentence with boxes, and has all boxes of that sentence. Findings of a
report and its reference are matched where each is the other's best by cosine among those present,
at a cosine of `ALIKE` or more; of equal ones (two nodules), those whose boxes share most.

    IoU            of a pair: shared area of both unions of boxes / area of either
    grounding_iou  = mean over the reference's findings of their pair's IoU, 0 of an unmatched one
    grounding_f1   = 2 t / (findings of both reports together), t the pairs of IoU >= `ENOUGH`

Where neither has a finding both are 1, where one of them has none both are 0. A box that is none
(`[90 0 10 5]`, beyond 100) has no area, so that it costs and never pays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rrgclinical.entities import Entities
from rrgclinical.rules import split_sentences

ALIKE, ENOUGH = 0.7, 0.5
"""Cosine from which two findings are one, and IoU from which a finding is in its place."""
ROUNDING = 1e-5
GROUNDING = ("grounding_iou", "grounding_f1")
NO_BOXES = "no reference has a box"
GRID = 100
_BOX = re.compile(r"\s*\[(\d{1,3}) (\d{1,3}) (\d{1,3}) (\d{1,3})\]")

Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


def parse_boxes(report: str) -> tuple[str, list[tuple[int, Box]]]:
    """Take the boxes out of a report; return its text, and boxes with places."""
    text, boxes, last = "", list[tuple[int, Box]](), 0
    for match in _BOX.finditer(report):
        text += report[last : match.start()]
        last = match.end()
        left, top, right, bottom = map(int, match.groups())
        boxes.append((len(text), (left, top, right, bottom)))
    return text + report[last:], boxes


def has_boxes(report: str | None) -> bool:
    """Tell whether a box stands in a report."""
    return _BOX.search(report or "") is not None


def with_boxes(text: str, boxes: Sequence[Box]) -> str:
    """Write a text with the boxes before the full stop of each of its sentences."""
    written = "".join(f" [{' '.join(map(str, box))}]" for box in boxes)
    for _, end in reversed(split_sentences(text) if boxes else []):
        body = text[:end].rstrip(".!?")
        stop = "." if len(body) == end else text[end - 1]
        text = f"{body}{written}{stop}{text[end:]}"
    return text


@dataclass(frozen=True)
class GroundedFindings:
    """Findings with boxes of R reports.

    offsets: int64 `[R + 1]`. vectors: `[N, d]`. areas: unions of boxes, bool `[100, 100]` each.
    """

    offsets: np.ndarray
    vectors: np.ndarray
    areas: list[np.ndarray]


def read_grounded(
    reports: Sequence[str], extract: Callable[[list[str]], Entities]
) -> GroundedFindings:
    """Read the present findings of the sentences that have boxes, by an extractor's `extract`."""
    parsed = [parse_boxes(report) for report in reports]
    read = extract([text for text, _ in parsed])
    rows, offsets, areas = list[int](), [0], list[np.ndarray]()
    for r, (_, boxes) in enumerate(parsed):
        for e in range(int(read.offsets[r]), int(read.offsets[r + 1])):
            begin, end = read.sentences[r][int(read.sentence[e])]
            inside = [box for place, box in boxes if begin < place <= end]
            if inside and read.presence[e] == 1:
                rows.append(e)
                areas.append(_area(inside))
        offsets.append(len(rows))
    return GroundedFindings(np.array(offsets), read.embedding[np.array(rows, np.int64)], areas)


def _area(boxes: Sequence[Box]) -> np.ndarray:
    drawn = np.zeros((GRID, GRID), dtype=bool)
    for left, top, right, bottom in boxes:
        if right <= GRID and bottom <= GRID:
            drawn[top:bottom, left:right] = True
    return drawn


def grounding(reports: GroundedFindings, references: GroundedFindings) -> dict[str, np.ndarray]:
    """Compute both values of `GROUNDING`, float64 `[R]` each, by one `entity_match`."""
    import torch  # a page reads boxes without it

    from rrgkern import ReportEntities, entity_match

    sides = [
        ReportEntities(
            torch.as_tensor(of.offsets),
            torch.ones(len(of.areas), dtype=torch.int8),
            torch.as_tensor(of.vectors),
        )
        for of in (reports, references)
    ]
    match = entity_match(*sides)
    best, back = match.cosine_x.numpy()[:, 1], match.cosine_y.numpy()[:, 1]
    x, y = reports.offsets, references.offsets
    rows = {name: np.ones(len(x) - 1) for name in GROUNDING}
    for r in range(len(x) - 1):
        own, true = slice(*x[r : r + 2]), slice(*y[r : r + 2])
        if own.start == own.stop and true.start == true.stop:
            continue
        least = np.maximum(np.maximum.outer(best[own], back[true]), ALIKE) - ROUNDING
        alike = reports.vectors[own] @ references.vectors[true].T >= least
        pairs = np.add(np.argwhere(alike), (x[r], y[r])).tolist()
        ious = [(_iou(reports.areas[i], references.areas[j]), i, j) for i, j in pairs]
        used, shared = set[tuple[bool, int]](), list[float]()
        for one, i, j in sorted(ious, reverse=True):  # of equal findings those that share most
            if not used & (ends := {(False, i), (True, j)}):
                used |= ends
                shared.append(one)
        size = true.stop - true.start
        rows["grounding_iou"][r] = sum(shared) / size if size else 0.0
        placed = sum(one >= ENOUGH for one in shared)
        rows["grounding_f1"][r] = 2 * placed / (own.stop - own.start + size)
    return rows


def _iou(one: np.ndarray, other: np.ndarray) -> float:
    either = int((one | other).sum())
    return int((one & other).sum()) / either if either else 0.0
