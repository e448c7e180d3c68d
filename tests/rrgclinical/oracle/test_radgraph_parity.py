"""radgraph and ours on the same archive: entities, relations, their order, and the scores."""

from __future__ import annotations

import json

import pytest

from rrgclinical.official import OfficialRadGraph
from rrgclinical.radgraph import RadGraph, RadGraphExtractor
from rrgclinical.radgraph.extractor import entities_of, kinds_of
from tests.rrgclinical.oracle.base import write_radgraph
from tests.rrgclinical.oracle.conftest import REPORTS
from tests.rrgclinical.radgraph import archives

TEXTS = [
    *archives.ADVERSARIAL,
    *archives.random_reports(REPORTS - len(archives.ADVERSARIAL), seed=3),
]


def write(folder, dataset: str, base: bool):
    if base:
        return write_radgraph(folder, dataset)
    modern = dataset.startswith("modern")
    config = archives.tiny_modern() if modern else archives.TINY
    return archives.write_archive(folder, dataset, encoder=config)


@pytest.fixture(scope="module", params=["radgraph", "radgraph-xl", "modern-radgraph-xl"])
def place(request, oracle, base, tmp_path_factory):
    return write(tmp_path_factory.mktemp(request.param), request.param, base)


@pytest.fixture(scope="module")
def official(place, oracle):
    return OfficialRadGraph(place, worker=oracle)


@pytest.fixture(scope="module")
def annotations(official):
    # As JSON: order counts.
    return [json.dumps(one) for one in official.official(TEXTS)]


@pytest.mark.parametrize("size", [1, 4, 16])
def test_graphs_are_official(place, annotations, size):
    assert len(TEXTS) >= 200
    radgraph = RadGraph(place, token_budget=10**6)
    graphs = [
        graph
        for begin in range(0, len(TEXTS), size)
        for graph in radgraph.annotate(TEXTS[begin : begin + size])
    ]
    for text, graph, wanted in zip(TEXTS, graphs, annotations, strict=True):
        assert json.dumps(graph.official()) == wanted, text
    entities = [entity for graph in graphs for entity in graph.entities]
    assert {entity.label for entity in entities} == set(radgraph.ner[1:])
    named = [name for entity in entities for name, _ in entity.relations]
    assert len(named) > 20
    assert set(named) == set(radgraph.relations)


def test_the_backend_gives_the_same_graphs(place, official):
    """Through the interface of the native one, a report of white space included."""
    chosen = [*TEXTS[:12], " \n"]
    for ours, theirs in zip(
        RadGraph(place).annotate(chosen), official.annotate(chosen), strict=True
    ):
        assert (ours.words, ours.spans, ours.entities) == (
            theirs.words, theirs.spans, theirs.entities,
        )  # fmt: skip


@pytest.mark.parametrize("case", ["pypi", "master"])
def test_scores_are_official(place, official, monkeypatch, case):
    """Candidates are references cut short, with their case turned around."""
    references = [text for text in TEXTS[:70] if text.strip()]
    candidates = [text[: 2 * len(text) // 3].swapcase() for text in references]
    candidates[3], references[5] = "", ""
    found = RadGraph(place, case=case).f1(candidates, references)
    monkeypatch.setattr(official, "case", case)
    wanted = official.f1(candidates, references)
    for one, other in zip(found, wanted, strict=True):
        assert one == pytest.approx(other, abs=1e-12)
    assert found[3] == found[5] == (0.0, 0.0, 0.0)
    for level in range(3):
        assert len({round(one[level], 6) for one in found}) >= 3


def test_extractors_agree(place, official):
    ours = RadGraphExtractor(place).extract(TEXTS[:30])
    theirs = entities_of(TEXTS[:30], official.annotate(TEXTS[:30]), kinds_of(official.ner))
    assert len(ours) > 20
    assert ours.text == theirs.text
    for name in ("offsets", "sentence", "presence", "kind", "key", "span", "embedding"):
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()
