"""RadGraph's graph of a report, entities with their relations, and F1 of two.

RadGraph-F1 (Jain et al., 2021; Delbrouck et al., 2022) without a level is `partial`, also called
RG_ER: EditGRPO's reward.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


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


CASES = ("pypi", "master")


class RadGraphF1(NamedTuple):
    """F1 over the distinct items of a report, at three levels.

    simple: (text, label) of each entity; partial: and whether it has a relation; complete: and
    what each relation says.
    """

    simple: float
    partial: float
    complete: float


def radgraph_f1(candidate: Graph, reference: Graph, *, case: str = "pypi") -> RadGraphF1:
    """0 at every level where either graph has no entity.

    Args:
        candidate: of the report that is scored.
        reference: of the report that it is held against.
        case: "pypi" as the package that pip installs (0.1.18), which lower-cases nothing but
            entities with relations at level complete; "master" as its repository since July 2026,
            which lower-cases everything. Both call themselves 0.1.18.

    Raises:
        ValueError: another case.
    """
    if case not in CASES:
        raise ValueError(f"case is {case!r}, wanted {' or '.join(map(repr, CASES))}")
    pairs = zip(_items(candidate, case), _items(reference, case), strict=True)
    return RadGraphF1(*(_f1(one, other) for one, other in pairs))


def _items(graph: Graph, case: str) -> tuple[set[tuple], set[tuple], set[tuple]]:
    simple: set[tuple] = set()
    partial: set[tuple] = set()
    complete: set[tuple] = set()
    for entity in graph.entities:
        text = entity.tokens.lower() if case == "master" else entity.tokens
        simple.add((text, entity.label))
        if not entity.relations:
            partial.add((text, entity.label))
            complete.add((text, entity.label))
            continue
        partial.add((text, entity.label, True))
        for relation, other in entity.relations:
            target = graph.entities[other].tokens.lower()
            complete.add((entity.tokens.lower(), entity.label, relation, target))
    return simple, partial, complete


def _f1(candidate: set[tuple], reference: set[tuple]) -> float:
    common = len(candidate & reference)
    if not common:
        return 0.0
    precision, recall = common / len(candidate), common / len(reference)
    return 2 * precision * recall / (precision + recall)
