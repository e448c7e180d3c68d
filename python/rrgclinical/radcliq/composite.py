"""RadCliQ-v1 (Yu et al., 2023): a linear model of four metrics, fitted to radiologists' errors.

Its numbers are those of CXRMetric/radcliq-v1.pkl in rajpurkarlab/CXR-Report-Metric, its parts as in
CXRMetric/run_eval.py there: RadGraph's mean of entity and relation F1 (of the model `radgraph`, not
`radgraph-xl`), BERTScore of distilroberta-base without idf (that repository's USE_IDF), and the
cosine of CheXbert's [CLS] states. BLEU-2 weighs 4.3e-12 and is left out: it cannot move a score by
more than 1e-11. The value estimates errors: lower is better. Leaderboards print 1 / RadCliQ-v1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rrgclinical.cached import Cached
from rrgclinical.chexbert import CheXbertLabeller
from rrgclinical.common.arguments import check_reports
from rrgclinical.radcliq.bertscore import BertScore
from rrgclinical.radgraph import Graph, RadGraph

# RadGraph, BERTScore, embeddings: mean and scale of the fit, and the weights.
_MEAN = np.array([0.5379231241355762, 0.6175725628125001, 0.7647942121140658])
_SCALE = np.array([0.3028258411486429, 0.22430938459304575, 0.2539439110169773])
_WEIGHT = np.array([-0.37708368261038905, -0.37030009974480316, -0.25261621789593225])
_INTERCEPT = 2.466552561323256e-10


class RadCliQParts(NamedTuple):
    """Values of each pair, float64 `[R]`: higher is better in all three."""

    radgraph: np.ndarray
    bertscore: np.ndarray
    embedding: np.ndarray


def radcliq_v1(parts: RadCliQParts) -> np.ndarray:
    """Combine the parts into RadCliQ-v1; float64 `[R]`, lower is better."""
    return (np.stack(parts, axis=1) - _MEAN) / _SCALE @ _WEIGHT + _INTERCEPT


def entity_relation_f1(candidate: Graph, reference: Graph) -> float:
    """Compute the mean of entity F1 and relation F1 of two graphs.

    0 each where none is shared."""
    pairs = zip(_items(candidate), _items(reference), strict=True)
    return (
        sum(
            2 * len(one & other) / (len(one) + len(other)) if one & other else 0.0
            for one, other in pairs
        )
        / 2.0
    )


class RadCliQ:
    """RadCliQ-v1 of pairs of reports, with models that are loaded.

    References are read once and kept, as `BertScore` keeps them; `results` counts the texts whose
    states CheXbert computed.
    """

    def __init__(
        self,
        radgraph: RadGraph | Cached[Graph],
        chexbert: CheXbertLabeller,
        bertscore: BertScore,
    ) -> None:
        """Published values are of the RadGraph model `radgraph`; another gives other values."""
        self.bertscore = bertscore
        self._graphs = radgraph if isinstance(radgraph, Cached) else Cached(radgraph.annotate)
        self.results: Cached[np.ndarray] = Cached(
            lambda texts: [row.copy() for row in chexbert.embed(texts).numpy()]
        )

    def read(self, references: Sequence[str]) -> None:
        """Read references ahead of `score`. Raises TypeError for one not a str."""
        texts = check_reports(references)
        self._graphs(texts, keep=True)
        self.results(texts, keep=True)
        self.bertscore.read(texts)

    def parts(self, reports: Sequence[str], references: Sequence[str]) -> RadCliQParts:
        """Measure each pair. TypeError names a report not a str; ValueError for other lengths."""
        ours, theirs = check_reports(reports), check_reports(references)
        if len(ours) != len(theirs):
            raise ValueError(f"{len(ours)} reports with {len(theirs)} references")
        if not ours:
            return RadCliQParts(np.zeros(0), np.zeros(0), np.zeros(0))
        other = np.stack(self.results(theirs, keep=True)).astype(np.float64)
        one = np.stack(self.results(ours)).astype(np.float64)
        norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        read = self._graphs(theirs, keep=True)
        pairs = zip(ours, theirs, self._graphs(ours), read, strict=True)
        # An empty report is read as the word "None".
        agreed = [entity_relation_f1(x, y) if a and b else 0.0 for a, b, x, y in pairs]
        return RadCliQParts(
            np.array(agreed, dtype=np.float64),
            self.bertscore.f1(ours, theirs),
            (one * other).sum(1) / norms,
        )

    def score(self, reports: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Compute RadCliQ-v1 of each pair; float64 `[R]`, lower is better. Raises as `parts`."""
        return radcliq_v1(self.parts(reports, references))


def _items(graph: Graph) -> tuple[set[tuple], set[tuple]]:
    """Distinct entities, and distinct relations between them."""
    keys = [(entity.tokens, entity.label) for entity in graph.entities]
    relations = {
        (key, keys[other], relation)
        for key, entity in zip(keys, graph.entities, strict=True)
        for relation, other in entity.relations
    }
    return set(keys), relations
