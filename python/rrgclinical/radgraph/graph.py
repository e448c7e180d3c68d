"""RadGraph's graph of a report: entities in order, with their relations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entity:
    """tokens: its words joined by spaces. first, last: words of the report, last included.
    relations: (label, index of the other entity in the graph), in order of the other's position.
    """

    tokens: str
    label: str
    first: int
    last: int
    relations: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Graph:
    """Words, entities and relations of a report.

    words, spans: the report as read, characters [start, end) of each word; an empty report is
    read as the word "None" without characters, as in the package.
    entities: by first word, then by last. segments: how many pieces the encoder read the report
    in; with more than one, what is in one was read without what is in another.
    """

    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    entities: tuple[Entity, ...]
    segments: int

    def official(self) -> dict[str, Any]:
        """The package's annotation of one report."""
        return {
            "text": " ".join(self.words),
            "entities": {
                str(number): {
                    "tokens": entity.tokens,
                    "label": entity.label,
                    "start_ix": entity.first,
                    "end_ix": entity.last,
                    "relations": [[label, str(other + 1)] for label, other in entity.relations],
                }
                for number, entity in enumerate(self.entities, start=1)
            },
            "data_source": None,
            "data_split": "inference",
        }


def build_graph(
    words: Sequence[str],
    spans: Sequence[tuple[int, int]],
    segments: int,
    entities: Iterable[tuple[int, int, str]],
    relations: Iterable[tuple[int, int, int, int, str]],
) -> Graph:
    """One report's graph.

    Args:
        words, spans, segments: as in `Graph`.
        entities: (first, last, label), in order.
        relations: (first, last, first of the other, last of it, label), in order. One between
            spans of which either is no entity is dropped, as in the package.
    """
    listed = list(entities)
    index = {(first, last): number for number, (first, last, _) in enumerate(listed)}
    leaving: dict[tuple[int, int], list[tuple[str, int]]] = {place: [] for place in index}
    for first, last, other_first, other_last, label in relations:
        other = index.get((other_first, other_last))
        if other is not None and (first, last) in leaving:
            leaving[first, last].append((label, other))
    return Graph(
        words=tuple(words),
        spans=tuple(spans),
        entities=tuple(
            Entity(
                " ".join(words[first : last + 1]), label, first, last, tuple(leaving[first, last])
            )
            for first, last, label in listed
        ),
        segments=segments,
    )
