"""RadGraph's own weights, read in batches: entities and relations, RadGraph-F1, editing."""

from __future__ import annotations

from rrgclinical.radgraph.annotator import RadGraph
from rrgclinical.radgraph.cached import CachedGraphs
from rrgclinical.radgraph.extractor import RadGraphExtractor
from rrgclinical.radgraph.graph import Entity, Graph
from rrgclinical.radgraph.reward import RadGraphF1, radgraph_f1

__all__ = [
    "CachedGraphs",
    "Entity",
    "Graph",
    "RadGraph",
    "RadGraphExtractor",
    "RadGraphF1",
    "radgraph_f1",
]
