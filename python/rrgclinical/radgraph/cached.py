"""Read the graph of each text once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rrgclinical.cached import CAPACITY, Cached, store_of
from rrgclinical.radgraph.annotator import RadGraph
from rrgclinical.radgraph.graph import Entity, Graph


class CachedGraphs:
    """RadGraph's graphs, each distinct text read once; see `Cached`."""

    def __init__(
        self, radgraph: RadGraph, *, cache: str | Path | None = None, capacity: int = CAPACITY
    ) -> None:
        def decode(payload: bytes, text: str) -> Graph:
            fields = json.loads(payload)
            entities = tuple(
                Entity(**{**entity, "relations": tuple(map(tuple, entity["relations"]))})
                for entity in fields["entities"]
            )
            spans = tuple((a, b) for a, b in fields["spans"])
            return Graph(tuple(fields["words"]), spans, entities, fields["segments"])

        self.radgraph = radgraph
        self.results: Cached[Graph] = Cached(
            radgraph.annotate,
            store=store_of(cache, radgraph, "graphs"),
            encode=lambda graph: json.dumps(asdict(graph)).encode(),
            decode=decode,
            capacity=capacity,
        )

    def annotate(self, reports: Sequence[str], *, keep: bool = False) -> list[Graph]:
        """The graph of every report."""
        return self.results(reports, keep=keep)
