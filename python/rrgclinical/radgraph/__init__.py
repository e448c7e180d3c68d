"""RadGraph's own weights, read in batches: entities and relations, RadGraph-F1, editing."""

from __future__ import annotations

from rrgclinical.radgraph.annotator import CachedGraphs, RadGraph
from rrgclinical.radgraph.extractor import RadGraphExtractor
from rrgclinical.radgraph.graph import Entity, Graph, RadGraphF1, radgraph_f1

__all__ = [
    "CachedGraphs",
    "Entity",
    "Graph",
    "RadGraph",
    "RadGraphExtractor",
    "RadGraphF1",
    "radgraph_f1",
]
