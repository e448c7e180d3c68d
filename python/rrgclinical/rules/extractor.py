"""Entities read by rules: findings present or absent, with side, zone and severity."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from rrgclinical.backends import check_reports
from rrgclinical.entities import KINDS, PRESENCE_OF_KIND, Entities
from rrgclinical.labels import ClassId
from rrgclinical.rules.assertion import read_sentence
from rrgclinical.rules.concepts import CONCEPTS, LUNG, PLAIN
from rrgclinical.rules.cues import SEVERITIES, SIDES, ZONES
from rrgclinical.rules.geometry import dimension, embed
from rrgclinical.rules.mention import Mention
from rrgclinical.rules.sentences import split_sentences

_ANATOMY = KINDS.index("ANATOMY")


class RulesExtractor:
    """Entities of the rules, with kinds of RaTE-NER and embeddings of `geometry`.

    A finding stated or suspected is present; one denied, or implied absent by a normal
    statement ("heart size is normal"), is absent; a structure named is an ANATOMY.
    """

    def extract(self, reports: Sequence[str]) -> Entities:
        """Entities ordered by report, then position. TypeError names a report not a str."""
        texts = check_reports(reports)
        sentences, offsets = [], [0]
        rows: list[tuple[int, int, int, int, int]] = []
        names: list[str] = []
        vectors: list[np.ndarray] = []
        for text in texts:
            spans = split_sentences(text)
            sentences.append(spans)
            for index, (start, end) in enumerate(spans):
                for mention in read_sentence(text[start:end]):
                    kind, key, name, vector = _canonical(*_identity(mention))
                    rows.append((index, kind, key, start + mention.start, start + mention.end))
                    names.append(name)
                    vectors.append(vector)
            offsets.append(len(rows))
        table = np.array(rows, dtype=np.int64).reshape(-1, 5)
        kinds = table[:, 1].astype(np.int8)
        return Entities(
            reports=texts,
            sentences=sentences,
            offsets=np.array(offsets, dtype=np.int64),
            sentence=table[:, 0].astype(np.int32),
            presence=PRESENCE_OF_KIND[kinds],
            kind=kinds,
            key=table[:, 2].copy(),
            span=table[:, 3:].astype(np.int32),
            text=names,
            embedding=np.stack(vectors) if vectors else np.zeros((0, dimension()), np.float32),
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
