"""Entities of a batch of reports, tied to their sentences by character span."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

KINDS: tuple[str, ...] = (
    "ABNORMALITY",
    "NON-ABNORMALITY",
    "DISEASE",
    "NON-DISEASE",
    "ANATOMY",
    "OBS-DP",
    "OBS-U",
    "OBS-DA",
    "ANAT-DP",
)
"""Entity types: RaTE-NER's five, then RadGraph's four."""

PRESENCE_OF_KIND = np.array([1, 0, 1, 0, -1, 1, 1, 0, -1], dtype=np.int8)
"""int8 `[len(KINDS)]`: 1 present (uncertain included), 0 absent, -1 takes no part."""

_UNIT_TOLERANCE = 1e-3
_SAID = {"doubt": np.int8, "change": np.int8, "size": np.float32, "tip": np.int8}
"""Columns that an extractor may leave out: 0 is unsaid."""
PER_ENTITY = ("sentence", "presence", "kind", "key", "span", "embedding", *_SAID)
"""Columns of `Entities` with a row for each entity."""


class EntityRow(NamedTuple):
    """One entity of a batch; fields as in `Entities`."""

    report: int
    """Index of the report in the batch."""
    sentence: int
    start: int
    end: int
    kind: int
    key: int
    text: str
    embedding: np.ndarray
    """float32 [d], of unit length."""
    doubt: int = 0
    change: int = 0
    size: float = 0.0
    tip: int = 0


@dataclass(frozen=True)
class Entities:
    """E entities of R reports, ordered by report.

    reports: the R texts. sentences: per report, (start, end) character spans in order, disjoint.
    offsets [R+1] int64: the entities of report r are offsets[r]:offsets[r+1].
    sentence [E] int32: index of the entity's sentence within its report.
    presence [E] int8: 1 present or uncertain, 0 absent, -1 takes no part (anatomy).
    kind [E] int8: index into KINDS.
    key [E] int64: equal iff text and type are equal after canonicalisation, also between calls.
    span [E, 2] int32: character span in the report, inside the span of the sentence.
    text: E canonical texts. embedding [E, d] float32: unit rows.
    doubt [E] int8: 1 where it is only suspected.
    change [E] int8: 0 unsaid, 1 better, 2 same, 3 worse than before.
    size [E] float32: mm, 0 unsaid.
    tip [E] int8: of a device, 0 unsaid, 1 in its place, 2 in a wrong one.
    An extractor that reads none of the last four leaves them out: all are unsaid.

    Raises TypeError or ValueError naming the first field that breaks one of these.
    """

    reports: list[str]
    sentences: list[list[tuple[int, int]]]
    offsets: np.ndarray
    sentence: np.ndarray
    presence: np.ndarray
    kind: np.ndarray
    key: np.ndarray
    span: np.ndarray
    text: list[str]
    embedding: np.ndarray
    doubt: np.ndarray = None  # type: ignore[assignment]
    change: np.ndarray = None  # type: ignore[assignment]
    size: np.ndarray = None  # type: ignore[assignment]
    tip: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        for name, dtype in _SAID.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.zeros(len(self.text), dtype))
        self._check_shapes()
        self._check_spans()
        self._check_values()

    @classmethod
    def from_rows(
        cls,
        reports: list[str],
        sentences: list[list[tuple[int, int]]],
        rows: Sequence[EntityRow],
        width: int,
    ) -> Entities:
        """Put rows, ordered by report, into columns; `width` is the length of an embedding."""
        numbers = np.array([row[:6] for row in rows], dtype=np.int64).reshape(-1, 6)
        report, sentence, start, end, kind, key = numbers.T
        said = np.array([row[8:] for row in rows], dtype=np.float64).reshape(-1, len(_SAID))
        counts = np.bincount(report, minlength=len(reports))
        embedding = np.zeros((0, width), np.float32)
        return cls(
            reports=reports,
            sentences=sentences,
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            sentence=sentence.astype(np.int32),
            presence=PRESENCE_OF_KIND[kind],
            kind=kind.astype(np.int8),
            key=key.copy(),
            span=np.stack([start, end], axis=1).astype(np.int32),
            text=[row.text for row in rows],
            embedding=np.stack([row.embedding for row in rows]) if rows else embedding,
            **{name: said[:, k].astype(dtype) for k, (name, dtype) in enumerate(_SAID.items())},
        )

    def __len__(self) -> int:
        return len(self.text)

    def of_report(self, report: int) -> slice:
        return slice(int(self.offsets[report]), int(self.offsets[report + 1]))

    def report_index(self) -> np.ndarray:
        """int64 [E]: the report of every entity."""
        return np.repeat(np.arange(len(self.reports)), np.diff(self.offsets))

    def _check_shapes(self) -> None:
        count, reports = len(self.text), len(self.reports)
        if len(self.sentences) != reports:
            raise ValueError(f"sentences of {len(self.sentences)} reports; wanted {reports}")
        shapes = {
            "offsets": ((reports + 1,), np.int64),
            "sentence": ((count,), np.int32),
            "presence": ((count,), np.int8),
            "kind": ((count,), np.int8),
            "key": ((count,), np.int64),
            "span": ((count, 2), np.int32),
            **{name: ((count,), dtype) for name, dtype in _SAID.items()},
            "embedding": ((count, *getattr(self.embedding, "shape", ())[-1:]), np.float32),
        }
        for name, (shape, dtype) in shapes.items():
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != dtype:
                kind = getattr(array, "dtype", type(array).__name__)
                raise TypeError(f"{name} is {kind}; wanted a numpy {np.dtype(dtype)} array")
            if array.shape != shape:
                raise ValueError(f"{name} has shape {array.shape}; wanted {shape}")
        offsets = self.offsets
        if offsets[0] != 0 or offsets[-1] != count or (np.diff(offsets) < 0).any():
            raise ValueError(f"offsets run {offsets[:3]}..{offsets[-1]}; wanted 0 up to {count}")

    def _check_spans(self) -> None:
        for report, (text, spans) in enumerate(zip(self.reports, self.sentences, strict=True)):
            end = 0
            for start, stop in spans:
                if not end <= start < stop <= len(text):
                    raise ValueError(
                        f"sentence span ({start}, {stop}) of report {report} overlaps, is empty "
                        f"or leaves its {len(text)} characters"
                    )
                end = stop
        rows = zip(
            self.report_index().tolist(), self.sentence.tolist(), self.span.tolist(), strict=True
        )
        for row, (report, sentence, (start, stop)) in enumerate(rows):
            spans = self.sentences[report]
            if not 0 <= sentence < len(spans):
                raise ValueError(
                    f"entity {row} names sentence {sentence} of report {report}, "
                    f"which has {len(spans)}"
                )
            low, high = spans[sentence]
            if not low <= start < stop <= high:
                raise ValueError(
                    f"entity {row} spans ({start}, {stop}), outside its sentence ({low}, {high})"
                )

    def _check_values(self) -> None:
        if len(self) == 0:
            return
        if not np.isin(self.presence, (-1, 0, 1)).all():
            raise ValueError(f"presence holds {np.unique(self.presence)}; wanted -1, 0 or 1")
        if self.kind.min() < 0 or self.kind.max() >= len(KINDS):
            raise ValueError(f"kind holds {np.unique(self.kind)}; wanted 0..{len(KINDS) - 1}")
        for name, most in (("doubt", 1), ("change", 3), ("tip", 2)):
            column = getattr(self, name)
            if column.min() < 0 or column.max() > most:
                raise ValueError(f"{name} holds {np.unique(column)}; wanted 0..{most}")
        if not (np.isfinite(self.size) & (self.size >= 0)).all():
            raise ValueError(f"size holds {self.size.min()}; wanted mm, 0 where it is unsaid")
        norms = np.sqrt(np.einsum("ed,ed->e", self.embedding, self.embedding))
        bad = np.flatnonzero(~(np.abs(norms - 1.0) <= _UNIT_TOLERANCE))
        if bad.size:
            raise ValueError(
                f"embedding row {bad[0]} has norm {norms[bad[0]]:.6g}; wanted unit rows"
            )


def split_entities(entities: Entities) -> list[Entities]:
    """One `Entities` per report, in order."""
    parts = []
    for report, text in enumerate(entities.reports):
        rows = entities.of_report(report)
        parts.append(
            Entities(
                reports=[text],
                sentences=[entities.sentences[report]],
                offsets=np.array([0, rows.stop - rows.start], dtype=np.int64),
                text=entities.text[rows],
                # copies: a view would keep the arrays of the whole batch alive
                **{name: getattr(entities, name)[rows].copy() for name in PER_ENTITY},
            )
        )
    return parts


def join_entities(parts: Sequence[Entities]) -> Entities:
    """The reports of all parts, in order; at least one part.

    Raises ValueError for embeddings of different widths.
    """
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    return Entities(
        reports=[text for part in parts for text in part.reports],
        sentences=[spans for part in parts for spans in part.sentences],
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        text=[name for part in parts for name in part.text],
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in PER_ENTITY},
    )
