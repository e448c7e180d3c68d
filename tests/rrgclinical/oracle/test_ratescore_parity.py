"""RaTEScore and ours on the same two folders: entities in order, and the scores."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict

import numpy as np
import pytest
import torch

from rrgclinical import KINDS
from rrgclinical.entities import join_entities
from rrgclinical.official import OfficialRaTEScore
from rrgclinical.ratescore import RaTEExtractor, affinity
from rrgkern import ReportEntities, entity_match
from tests.rrgclinical.oracle.base import asked, name_tokenizers, write_ratescore
from tests.rrgclinical.oracle.conftest import REPORTS, SIZE
from tests.rrgclinical.radgraph import archives
from tests.rrgclinical.ratescore import tiny

# At the real size the package takes seconds for one score: fewer of them there.
BASE = SIZE == "base"
EDGES = ["", " ", "a", "a. b.", "ok", *archives.ADVERSARIAL[1:]]
TEXTS = [*EDGES, *archives.random_reports(REPORTS - len(EDGES), seed=7)]
SCORED = 40 if BASE else len(TEXTS) - 1
# What 0.5.0 multiplies opposite polarities with; 0.6.0 has a number of its own per table.
WEIGHTS = {"long": 0.8716553966489615, "short": 0.3611577852354489, "0.5.0": 0.3612}


@pytest.fixture(scope="module")
def folders(oracle, base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ratescore")
    if base:
        written = write_ratescore(folder, TEXTS, sentences_of(TEXTS[10:24] + TEXTS[-24:]))
    else:
        written = tiny.write_tiny(folder, TEXTS)
    name_tokenizers(*written)
    return written


def sentences_of(reports: list[str]) -> list[str]:
    """Return what a tagger reads of them, near enough to calibrate one."""
    found = [part for report in reports for part in re.split(r"(?<=[.!?])\s+", report)]
    return [part for part in found if len(part) > 3]


@pytest.fixture(scope="module")
def official(folders, oracle):
    return OfficialRaTEScore(*folders, worker=oracle)


@pytest.fixture(scope="module")
def split(official):
    """The package's sentences, which its splitter finds with libraries that are not here."""
    spans = {}
    for text, sentences in zip(
        TEXTS, official.worker.call("ratescore_sentences", reports=TEXTS), strict=True
    ):
        spans[text], at = [], 0
        for sentence in sentences:
            start = text.index(sentence, at)
            at = start + len(sentence)
            spans[text].append((start, at))
    return spans.__getitem__


@pytest.fixture(scope="module")
def entities(folders, split):
    return extractor(folders, split).extract(TEXTS)


@pytest.fixture(scope="module")
def pairs(entities):
    """Reports that are scored against each other, an empty one first."""
    names = listed(entities)
    rows = [k for k in range(len(TEXTS)) if not BASE or (names[k] and not tied(names[k]))]
    rows = rows if rows[0] == 0 else [0, *rows]
    return list(itertools.pairwise(rows))[:SCORED]


@pytest.fixture(scope="module")
def scores(official, pairs):
    return official.score(*([TEXTS[k] for k in side] for side in zip(*pairs, strict=True)))


def extractor(folders, split, budget=None):
    ours = RaTEExtractor(*folders, token_budget=budget)
    ours.split = split
    return ours


def listed(found) -> list[list[tuple[str, str]]]:
    parts = [found.of_report(row) for row in range(len(found.reports))]
    return [
        [(found.text[k], KINDS[found.kind[k]]) for k in range(part.start, part.stop)]
        for part in parts
    ]


def test_entities_are_official(official, entities):
    assert len(TEXTS) == 220
    read = asked(official, "ratescore_entities", reports=TEXTS)
    assert listed(entities) == [list(map(tuple, row)) for row in read]
    assert {KINDS[kind] for kind in entities.kind} == set(KINDS[:5])
    assert sum(not one for one in listed(entities)) >= 3


@pytest.mark.parametrize("size", [1, 4, 16])
def test_batches_are_official(folders, split, entities, pairs, scores, size):
    """Entities whatever the batch, and with them the scores."""
    ours = extractor(folders, split, budget=8192)
    parts = [ours.extract(TEXTS[k : k + size]) for k in range(0, len(TEXTS), size)]
    assert [row for part in parts for row in listed(part)] == listed(entities)
    compare(join_entities(parts), pairs, scores, "long", WEIGHTS["long"])


@pytest.mark.parametrize("table", ["short", "0.5.0"])
def test_scores_of_other_tables_are_official(folders, oracle, entities, pairs, table):
    name, weight = ("long" if table == "0.5.0" else table), WEIGHTS[table]
    scorer = OfficialRaTEScore(
        *folders, affinity=name, neg_weight=weight if table == "0.5.0" else None, worker=oracle
    )
    some = pairs[::4]
    wanted = scorer.score(*([TEXTS[k] for k in side] for side in zip(*some, strict=True)))
    compare(entities, some, wanted, name, weight)


def compare(
    entities, pairs: list[tuple[int, int]], wanted: np.ndarray, table: str, weight: float
) -> None:
    """Scores of `pairs` of reports. The empty report keeps its place, with 0.5."""
    x, y = (parts_of(entities, list(side)) for side in zip(*pairs, strict=True))
    found = entity_match(x, y, affinity=affinity(table), neg_weight=weight).score.numpy()
    names = listed(entities)
    untied = np.array([not tied(names[a]) and not tied(names[b]) for a, b in pairs])
    assert untied.sum() > len(pairs) // 4
    # Where two cosines are equal the package takes either, by rounding.
    assert np.abs(found - wanted)[untied].max() <= 1e-6
    assert found[0] == wanted[0] == 0.5
    assert len(np.unique(wanted.round(6))) > len(pairs) // 2


def tied(names: list[tuple[str, str]]) -> bool:
    """Tell whether one text has two types: its cosines are equal, and the types are not."""
    kinds = defaultdict(set)
    for text, kind in names:
        kinds["".join(text.casefold().split())].add(kind)
    return any(len(found) > 1 for found in kinds.values())


def parts_of(entities, reports: list[int]) -> ReportEntities:
    rows = np.concatenate(
        [np.arange(len(entities))[entities.of_report(report)] for report in reports]
    )
    counts = [len(range(*entities.of_report(k).indices(len(entities)))) for k in reports]
    return ReportEntities(
        offsets=torch.tensor([0, *np.cumsum(counts).tolist()]),
        presence=torch.as_tensor(entities.presence[rows]),
        embedding=torch.as_tensor(entities.embedding[rows]),
        kind=torch.as_tensor(entities.kind[rows]),
    )
