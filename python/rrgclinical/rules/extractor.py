"""Entities read by rules: findings present or absent, with side, zone and severity."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from rrgclinical.common.arguments import check_reports
from rrgclinical.entities import KINDS, Entities, EntityRow
from rrgclinical.labels import ClassId
from rrgclinical.rules.assertion import read_sentence
from rrgclinical.rules.attributes import SEVERITIES, SIDES, ZONES
from rrgclinical.rules.concepts import CONCEPTS, LUNG, PLAIN
from rrgclinical.rules.details import read_details
from rrgclinical.rules.geometry import dimension, embed
from rrgclinical.rules.mention import Mention
from rrgclinical.rules.sentences import split_plain

_CACHE_SENTENCES = 1 << 16
_ANATOMY = KINDS.index("ANATOMY")


class RulesExtractor:
    """Entities of the rules, with kinds of RaTE-NER and embeddings of `geometry`.

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
