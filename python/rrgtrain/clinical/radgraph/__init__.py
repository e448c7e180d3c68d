"""RadGraph's own weights, read in batches: entities and relations, RadGraph-F1, editing."""

from __future__ import annotations

from rrgtrain.clinical.radgraph.annotator import RadGraph
from rrgtrain.clinical.radgraph.extractor import RadGraphExtractor
from rrgtrain.clinical.radgraph.graph import Entity, Graph
from rrgtrain.clinical.radgraph.reward import RadGraphF1, radgraph_f1

__all__ = ["Entity", "Graph", "RadGraph", "RadGraphExtractor", "RadGraphF1", "radgraph_f1"]
