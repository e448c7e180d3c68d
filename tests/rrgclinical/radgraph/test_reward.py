"""RadGraph-F1 by hand, in both cases."""

from __future__ import annotations

import pytest

from rrgclinical.radgraph import RadGraph, RadGraphF1, radgraph_f1
from rrgclinical.radgraph.graph import build_graph

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


def test_a_relation_to_no_entity_is_dropped():
    built = graph(
        "a b c", [(0, 0, DP), (1, 1, DP)], [(0, 0, 2, 2, "modify"), (2, 2, 0, 0, "modify")]
    )
    assert [one.relations for one in built.entities] == [(), ()]


def test_repeated_entities_count_once():
    twice = graph("edema edema", [(0, 0, DP), (1, 1, DP)])
    assert radgraph_f1(twice, graph("edema", [(0, 0, DP)])) == (1.0, 1.0, 1.0)


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
    with pytest.raises(ValueError, match="1 candidates with 2 references"):
        radgraph.f1(["a"], ["b", "c"])
