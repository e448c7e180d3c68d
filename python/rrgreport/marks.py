"""Mark the sentences of a report that the reference supports, by entities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rrgclinical import Entities, Extractor

CORRECT, PARTLY, SPURIOUS, NEUTRAL = "correct", "partly", "spurious", "neutral"


@dataclass(frozen=True)
class Marked:
    """A report cut into (text, mark) pieces that join to the whole, white space unmarked.

    `missing` holds the reference's sentences with an entity that the report lacks.
    """

    pieces: list[tuple[str, str]]
    missing: list[str]


def mark_reports(
    reports: Sequence[str], references: Sequence[str], extractor: Extractor, tau: float = 0.6
) -> list[Marked]:
    """Marks every sentence of each report against its reference.

    An entity is supported when the other text holds one with cosine > `tau` and equal presence
    (EditGRPO's definition of spurious and missing). A sentence is correct when all its entities
    are supported, spurious when none is, partly in between, neutral without entities or where
    there is no reference to compare with.
    """
    of_reports, of_references = extractor.extract(reports), extractor.extract(references)
    marked = []
    for r in range(len(reports)):
        if not references[r].strip():
            marked.append(Marked([(reports[r], NEUTRAL)] if reports[r] else [], []))
            continue
        ours, theirs = of_reports.of_report(r), of_references.of_report(r)
        agree = _agree(of_reports, ours, of_references, theirs, tau)
        kinds = _sentence_marks(of_reports, r, np.logical_or.reduce(agree, axis=1))
        lacking = _sentence_marks(of_references, r, np.logical_or.reduce(agree, axis=0))
        marked.append(
            Marked(
                pieces=_pieces(reports[r], of_reports.sentences[r], kinds),
                missing=[
                    references[r][begin:end]
                    for (begin, end), kind in zip(of_references.sentences[r], lacking, strict=True)
                    if kind in (PARTLY, SPURIOUS)
                ],
            )
        )
    return marked


def _agree(x: Entities, rows: slice, y: Entities, columns: slice, tau: float) -> np.ndarray:
    """bool [entities of the report, entities of the reference]."""
    cosine = x.embedding[rows].astype(np.float64) @ y.embedding[columns].astype(np.float64).T
    same = x.presence[rows][:, None] == y.presence[columns][None, :]
    return (cosine.astype(np.float32) > np.float32(tau)) & same


def _sentence_marks(entities: Entities, report: int, supported: np.ndarray) -> list[str]:
    rows = entities.of_report(report)
    sentence, takes_part = entities.sentence[rows], entities.presence[rows] >= 0
    marks = []
    for index in range(len(entities.sentences[report])):
        votes = supported[(sentence == index) & takes_part]
        if not len(votes):
            marks.append(NEUTRAL)
        elif votes.all():
            marks.append(CORRECT)
        else:
            marks.append(PARTLY if votes.any() else SPURIOUS)
    return marks


def _pieces(
    report: str, sentences: list[tuple[int, int]], marks: list[str]
) -> list[tuple[str, str]]:
    pieces, at = [], 0
    for (begin, end), mark in zip(sentences, marks, strict=True):
        if begin > at:
            pieces.append((report[at:begin], NEUTRAL))
        pieces.append((report[begin:end], mark))
        at = end
    if at < len(report):
        pieces.append((report[at:], NEUTRAL))
    return pieces
