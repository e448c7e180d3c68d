"""The graphs are those of the long way round, whatever the batch."""

from __future__ import annotations

import json
import re

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.tokenize import wordpunct_tokenize

from rrgclinical.radgraph import RadGraph, RadGraphF1, radgraph_f1
from rrgclinical.radgraph.graph import build_graph
from rrgclinical.radgraph.words import split_words
from tests.rrgclinical.radgraph import archives
from tests.rrgclinical.radgraph.reference import Reference

REPORTS = [*archives.ADVERSARIAL, *archives.random_reports(12, seed=3, longest=30)]


def official(graphs) -> list[str]:
    """As JSON: order counts."""
    return [json.dumps(graph.official()) for graph in graphs]


def test_graphs_equal_the_long_way(archive):
    place, dataset = archive
    radgraph = RadGraph(place)
    reader = Reference(torch.load(place / "weights.th"), place.parent / "encoder", dataset)
    graphs = radgraph.annotate(REPORTS)
    for report, graph in zip(REPORTS, graphs, strict=True):
        wanted = reader.annotate(report or "None", list(radgraph.ner), list(radgraph.relations))
        assert json.dumps(graph.official()) == json.dumps(wanted), report
    assert {one.label for graph in graphs for one in graph.entities} == set(radgraph.ner[1:])
    assert len({name for g in graphs for one in g.entities for name, _ in one.relations}) >= 2


@pytest.mark.parametrize("size", [1, 4, 16])
def test_batch_and_order_change_nothing(xl, size):
    together = official(RadGraph(xl).annotate(REPORTS))
    radgraph = RadGraph(xl, token_budget=10**6)
    turned = list(enumerate(REPORTS))[::-1]
    for begin in range(0, len(turned), size):
        rows, chosen = zip(*turned[begin : begin + size], strict=True)
        assert official(radgraph.annotate(chosen)) == [together[row] for row in rows]


def test_spans_point_into_the_report_as_given(xl):
    report = '  Heart\n\nnormal).  \\"small\\" caf\u00e9\x85left'
    (graph,) = RadGraph(xl).annotate([report])
    assert [report[a:b] for a, b in graph.spans] == [
        "Heart", "normal", ")", ".", '\\"', "small", '\\"', "caf\u00e9", "left",
    ]  # fmt: skip
    assert " ".join(graph.words) == "Heart normal ) . `` small `` caf\u00e9 left"


def test_longer_than_the_encoder_reads_is_told_once(xl, caplog):
    radgraph = RadGraph(xl)
    short, long = radgraph.annotate(["no effusion", "heart " * 63])
    assert (short.segments, long.segments) == (1, 2)
    radgraph.annotate(["heart " * 64])
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert told[0].startswith("1 of 2 reports exceed the 64 pieces")


def test_one_long_report_is_no_different_in_small_batches(xl):
    """A row budget below a single report, and pairs in several chunks."""
    report = " ".join(archives.random_reports(8, seed=11))
    assert official(RadGraph(xl, token_budget=1).annotate([report])) == official(
        RadGraph(xl).annotate([report, "no effusion"])[:1]
    )


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("_ner._ner_scorers.radgraph-xl__ner_labels.1._module.bias", 0, torch.nan),
        ("_relation._relation_scorers.radgraph-xl__relation_labels.bias", 1, torch.inf),
    ],
)
def test_scores_that_are_not_finite_are_told(tmp_path, name, place, value):
    def damage(state):
        state[name][place] = value

    radgraph = RadGraph(archives.write_archive(tmp_path, change=damage))
    with pytest.raises(FloatingPointError, match="RadGraph's scores are not finite"):
        radgraph.annotate(["no effusion"])


# RadGraph-F1 by hand, in both cases.
DP, DA = "Observation::definitely present", "Observation::definitely absent"
NOTHING = build_graph(["None"], [(0, 0)], 1, [], [])


def graph(text: str, entities, relations=()):
    words = text.split()
    return build_graph(words, [(0, 0)] * len(words), 1, entities, relations)


def test_levels_by_hand():
    reference = graph("left effusion edema", [(0, 0, DP), (1, 1, DP), (2, 2, DA)],
                      [(0, 0, 1, 1, "modify")])  # fmt: skip
    candidate = graph("left effusion", [(0, 0, DP), (1, 1, DP)], [(0, 0, 1, 1, "located_at")])
    # simple and partial: 2 of 2 and 2 of 3; complete: "effusion" alone of 2 and of 3.
    assert radgraph_f1(candidate, reference) == pytest.approx((0.8, 0.8, 0.4))
    alone = graph("left effusion", [(0, 0, DP), (1, 1, DP)])
    # partial: "left" has a relation in the reference and none here.
    assert radgraph_f1(alone, reference) == pytest.approx((0.8, 0.4, 0.4))


def test_case_by_hand():
    one = graph("Left Effusion", [(0, 0, DP), (1, 1, DP)], [(0, 0, 1, 1, "modify")])
    other = graph("left effusion", [(0, 0, DP), (1, 1, DP)], [(0, 0, 1, 1, "modify")])
    # The package lower-cases at level complete, and there entities with relations only.
    assert radgraph_f1(one, other) == pytest.approx((0.0, 0.0, 0.5))
    assert radgraph_f1(one, other, case="master") == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="case is 'upper', wanted 'pypi' or 'master'"):
        radgraph_f1(one, other, case="upper")


def test_nothing_scores_nothing():
    some = graph("edema", [(0, 0, DP)])
    for pair in ((NOTHING, some), (some, NOTHING), (NOTHING, NOTHING)):
        assert radgraph_f1(*pair) == (0.0, 0.0, 0.0)


def test_scores_of_reports(xl):
    radgraph = RadGraph(xl)
    report = "small left effusion. no edema, the heart is normal size"
    assert radgraph.annotate([report])[0].entities
    same, empty, blank = radgraph.f1([report, "", " "], [report, report, report])
    assert same == RadGraphF1(1.0, 1.0, 1.0)
    # The empty candidate has an entity when read as "None", and is not read.
    assert empty == blank == RadGraphF1(0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="1 reports and 2 references"):
        radgraph.f1(["a"], ["b", "c"])


# Words are those of the package's preprocessing, written here as it is: replace, join, split.
_PARTS = [*"ab%).,'\"\\nfu2 \n\t\x0b\x1c\x85\u3000-_/?!:(\u0301\u200d\u200bé😀心"]
_PARTS += ["\\n", "\\f", "\\u2122", '\\"', ").", "%.", ".'", "%,", "%)"]


def xl_words(text: str) -> list[str]:
    for escape, spaces in (("\\n", 2), ("\\f", 2), ("\\u2122", 6), ("\n", 1)):
        text = text.replace(escape, " " * spaces)
    text = re.sub(r"\s+", " ", text.replace('\\"', "``"))
    joined = " ".join(wordpunct_tokenize(text))
    for marks in (").", "%.", ".'", "%,", "%)"):
        joined = joined.replace(marks, " ".join(marks))
    return joined.split()


def first_words(text: str) -> list[str]:
    spaced = re.sub(r"(?<! )(?=[/,:.!?()])|(?<=[/,:.!?()])(?! )", " ", text)
    return spaced.split()


@settings(max_examples=400)
@given(st.lists(st.sampled_from(_PARTS), max_size=16).map("".join))
@example("cafe\u0301 \u200d\x1c).'%.")
def test_words_are_official(text):
    for model_type, wanted in (("radgraph", first_words), ("radgraph-xl", xl_words)):
        found = split_words(text, model_type)
        assert [word for word, _, _ in found] == wanted(text)
        ends = 0
        for word, start, end in found:
            assert ends <= start < end
            assert text[start:end] == word or "``" in word
            ends = end
