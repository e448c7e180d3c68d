"""RadGraph's entities for EditGRPO (table 4), equal where text and class agree."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from rrgclinical.common.arguments import check_reports
from rrgclinical.common.errors import UserError
from rrgclinical.entities import KINDS, PRESENCE_OF_KIND, Entities, EntityRow
from rrgclinical.radgraph.annotator import RadGraph
from rrgclinical.radgraph.graph import Entity, Graph
from rrgclinical.rules.sentences import split_sentences

_STATUS = {"definitely present": "DP", "uncertain": "U", "definitely absent": "DA"}
_BITS = 256
_CELL = np.float32(1 / 16)
"""256 cells of +-1/16 are a unit vector, exactly, and so is the dot product of two."""


class RadGraphExtractor:
    """Observations with their presence, anatomy without one.

    The key and the text are lower-case. The embedding is 256 signs drawn from a digest of text and
    class (observation or anatomy), not of presence: equal entities have cosine 1, and two others
    exceed 0.6 with a probability below 1e-21. So EditGRPO's rules, which compare cosines, compare
    for equality here, and an observation stated in one report and denied in another conflicts.
    """

    def __init__(
        self,
        weights: str | Path | None = None,
        model_type: str | None = None,
        *,
        encoder: str | Path | None = None,
        device: str | torch.device = "cpu",
        dtype: str = "fp32",
        token_budget: int | None = None,
    ) -> None:
        """As `RadGraph`. UserError names a label of the archive that is not RadGraph's."""
        self.radgraph = RadGraph(
            weights,
            model_type,
            encoder=encoder,
            device=device,
            dtype=dtype,
            token_budget=token_budget,
        )
        self._kinds = kinds_of(self.radgraph.ner)

    @property
    def fingerprint(self) -> str:
        return self.radgraph.fingerprint

    def extract(self, reports: Sequence[str]) -> Entities:
        """Entities ordered by report, then position. TypeError names a report not a str.

        One that runs over the end of a sentence is cut there. Text between sentences (a list
        marker on a line of its own) holds none.
        """
        texts = check_reports(reports)
        return entities_of(texts, self.radgraph.annotate(texts), self._kinds)


def kinds_of(labels: Sequence[str]) -> dict[str, int]:
    """Index into `KINDS` of every entity label of an archive but the empty one."""
    return {label: _kind(label) for label in labels if label}


def entities_of(reports: list[str], graphs: Sequence[Graph], kinds: dict[str, int]) -> Entities:
    """Graphs as `Entities`. kinds: RadGraph label -> index into `KINDS`."""
    sentences = [split_sentences(text) for text in reports]
    rows = []
    for report, (text, spans, graph) in enumerate(zip(reports, sentences, graphs, strict=True)):
        for entity in graph.entities if text else ():
            place = _place(entity, graph, spans)
            if place is not None:
                kind, name = kinds[entity.label], entity.tokens.lower()
                rows.append(EntityRow(report, *place, kind, *_identity(name, kind)))
    return Entities.from_rows(reports, sentences, rows, _BITS)


def _kind(label: str) -> int:
    """Index into KINDS of a label of either generation: "OBS-DP", "Observation::uncertain"."""
    if label in KINDS:
        return KINDS.index(label)
    group, *_, status = label.split("::")
    if group == "Anatomy" and status in _STATUS:
        return KINDS.index("ANAT-DP")
    if group == "Observation" and status in _STATUS:
        return KINDS.index(f"OBS-{_STATUS[status]}")
    raise UserError(f"extractor radgraph: {label!r} is no RadGraph label; wanted its own archive")


def _place(
    entity: Entity, graph: Graph, sentences: list[tuple[int, int]]
) -> tuple[int, int, int] | None:
    """(sentence, start, end) of the entity within the first sentence that it touches."""
    start, end = graph.spans[entity.first][0], graph.spans[entity.last][1]
    for index, (low, high) in enumerate(sentences):
        if start < high and low < end:
            return index, max(start, low), min(end, high)
    return None


@lru_cache(maxsize=65536)
def _identity(name: str, kind: int) -> tuple[int, str, np.ndarray]:
    """(key, text, embedding), the same in every process."""
    group = "anatomy" if PRESENCE_OF_KIND[kind] < 0 else "observation"
    text = name.encode("utf-8", "surrogatepass")
    key = hashlib.blake2b(text, digest_size=8, key=KINDS[kind].encode()).digest()
    seed = hashlib.blake2b(text, digest_size=_BITS // 8, key=group.encode()).digest()
    signs = np.unpackbits(np.frombuffer(seed, dtype=np.uint8))
    vector = np.where(signs, _CELL, -_CELL)
    return int.from_bytes(key, "little", signed=True), name, vector
