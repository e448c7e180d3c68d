"""Entities read by rules: findings present or absent, with side, zone and severity.

An embedding is a unit vector built from orthogonal axes: the tensor product of a concept vector and
an attribute vector, so a cosine is the product of two similarities that can be read off the tables
below:

    cos = <concept, concept'> * (A + B side.side' + C zone.zone' + D severity.severity')

Concepts of different families are orthogonal, two of one family have cosine `RELATED`. In each
attribute plane "unspecified" is the axis, and the values lean off it by an angle, so that they
are nearer to it than to each other. The weights make a contradiction in side or in zone alone
cost more than 0.4 (cosine 0.59), and leaving both unsaid with opposite severities cost less
(0.61), so EditGRPO's threshold of 0.6 separates contradictory from compatible for every pair.
"bilateral" contains each side and is embedded as unspecified; so is "moderate".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from rrgclinical.common.arguments import check_reports
from rrgclinical.entities import KINDS, Entities, EntityRow
from rrgclinical.labels import ClassId
from rrgclinical.rules.assertion import read_sentence
from rrgclinical.rules.concepts import CONCEPTS, LUNG, PLAIN, SIDED
from rrgclinical.rules.cues import SEVERITIES, SIDES, ZONES
from rrgclinical.rules.details import read_details
from rrgclinical.rules.mention import Mention
from rrgclinical.rules.sentences import split_plain

RELATED = 0.5
"""Cosine of two findings of one family without attributes."""

_SIDE_WEIGHT, _ZONE_WEIGHT, _SEVERITY_WEIGHT = 0.275, 0.365, 0.07
_CONCEPT_WEIGHT = 1.0 - _SIDE_WEIGHT - _ZONE_WEIGHT - _SEVERITY_WEIGHT


def _lean(angle: float, *direction: float) -> list[float]:
    return [math.cos(angle), *(math.sin(angle) * value for value in direction)]


_SIXTY, _FORTY_FIVE = math.radians(60), math.radians(45)
_SIDE = np.array([[1, 0], _lean(_SIXTY, -1), _lean(_SIXTY, 1), [1, 0]])
_ZONE = np.array(
    [
        [1, 0, 0],
        *(
            _lean(_SIXTY, math.cos(turn), math.sin(turn))
            for turn in (0.0, 2 * math.pi / 3, 4 * math.pi / 3)
        ),
    ]
)
_SEVERITY = np.array([[1, 0], _lean(_FORTY_FIVE, -1), [1, 0], _lean(_FORTY_FIVE, 1)])


@cache
def _concept_vectors() -> np.ndarray:
    """[C, C] unit rows: identity between families, Gram `RELATED` inside one."""
    gram = np.eye(len(CONCEPTS))
    for i, first in enumerate(CONCEPTS):
        for j, second in enumerate(CONCEPTS):
            if i != j and first.family == second.family:
                gram[i, j] = RELATED
    return np.linalg.cholesky(gram)


def _attribute_vector(layout: str, side: int, zone: int, severity: int) -> np.ndarray:
    if layout == PLAIN:
        side = 0
    if layout != LUNG:
        zone = 0
    return np.concatenate(
        [
            [math.sqrt(_CONCEPT_WEIGHT)],
            math.sqrt(_SIDE_WEIGHT) * _SIDE[side],
            math.sqrt(_ZONE_WEIGHT) * _ZONE[zone],
            math.sqrt(_SEVERITY_WEIGHT) * _SEVERITY[severity],
        ]
    )


def _product(concept: int, side: int, zone: int, severity: int) -> np.ndarray:
    attributes = _attribute_vector(CONCEPTS[concept].layout, side, zone, severity)
    return np.kron(_concept_vectors()[concept], attributes)


@cache
def _used_columns() -> np.ndarray:
    used = np.zeros(_product(0, 0, 0, 0).shape, dtype=bool)
    for concept, entry in enumerate(CONCEPTS):
        for side in range(4 if entry.layout in (LUNG, SIDED) else 1):
            for zone in range(4 if entry.layout == LUNG else 1):
                for severity in range(4):
                    used |= _product(concept, side, zone, severity) != 0
    return np.flatnonzero(used)


def dimension() -> int:
    """Length of an embedding."""
    return int(_used_columns().size)


@cache
def embed(concept: int, side: int, zone: int, severity: int) -> np.ndarray:
    """float32 [dimension()], a unit vector; read-only, shared between calls."""
    vector = _product(concept, side, zone, severity)[_used_columns()]
    row = (vector / np.linalg.norm(vector)).astype(np.float32)
    row.flags.writeable = False
    return row


_CACHE_SENTENCES = 1 << 16
_ANATOMY = KINDS.index("ANATOMY")


class RulesExtractor:
    """Entities of the rules, with kinds of RaTE-NER and embeddings by `embed`.

    A finding stated or suspected is present; one denied, or implied absent by a normal
    statement ("heart size is normal"), is absent; a structure named is an ANATOMY. Of a finding
    that is present, doubt, change, size and the place of a device's tip are read too.
    """

    def extract(self, reports: Sequence[str]) -> Entities:
        """Entities ordered by report, then position. TypeError names a report not a str."""
        texts = check_reports(reports)
        plain = [split_plain(text) for text in texts]
        sentences = [spans for _, spans in plain]
        rows = [
            EntityRow(report, index, start + first, start + last, *read)
            for report, (text, spans) in enumerate(plain)
            for index, (start, end) in enumerate(spans)
            for first, last, read in _read(text[start:end])
        ]
        return Entities.from_rows(texts, sentences, rows, dimension())


@lru_cache(maxsize=_CACHE_SENTENCES)
def _read(sentence: str) -> tuple[tuple[int, int, tuple[Any, ...]], ...]:
    """Characters of each mention, and the fields of its row from `kind` on."""
    return tuple(
        (m.start, m.end, (*_canonical(*_identity(m)), m.status == ClassId.UNCERTAIN, *said))
        for m, said in zip(read_sentence(sentence), read_details(sentence), strict=True)
    )


def _identity(mention: Mention) -> tuple[int, int, int, int, int]:
    """(concept, kind, side, zone, severity), without the attributes its layout has not."""
    concept = CONCEPTS[mention.concept]
    side = mention.side if concept.layout != PLAIN else 0
    zone = mention.zone if concept.layout == LUNG else 0
    severity = 0 if concept.anatomy else mention.severity
    if concept.anatomy:
        kind = _ANATOMY
    else:
        base = "DISEASE" if concept.disease else "ABNORMALITY"
        absent = mention.status == ClassId.NEGATIVE
        kind = KINDS.index(f"NON-{base}" if absent else base)
    return mention.concept, kind, side, zone, severity


@cache
def _canonical(
    concept: int, kind: int, side: int, zone: int, severity: int
) -> tuple[int, int, str, np.ndarray]:
    """(kind, key, text, embedding)"""
    key = concept
    for value, base in (
        (side, len(SIDES)),
        (zone, len(ZONES)),
        (severity, len(SEVERITIES)),
        (kind, len(KINDS)),
    ):
        key = key * base + value
    words = (SEVERITIES[severity], SIDES[side], ZONES[zone], CONCEPTS[concept].name)
    return kind, key, " ".join(filter(None, words)), embed(concept, side, zone, severity)
