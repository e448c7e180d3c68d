"""The graphs are those of the long way round, and the entities that EditGRPO reads in them."""

from __future__ import annotations

import json
import re
import shutil
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.tokenize import wordpunct_tokenize

from rrgclinical import hub
from rrgclinical.entities import KINDS
from rrgclinical.radgraph import RadGraph, RadGraphExtractor, RadGraphF1, radgraph_f1
from rrgclinical.radgraph.extractor import entities_of, kinds_of
from rrgclinical.radgraph.graph import build_graph
from rrgclinical.radgraph.words import split_words
from rrgtrain.errors import UserError
from tests.rrgclinical.radgraph import archives
from tests.rrgclinical.radgraph.reference import Reference

REPORTS = [*archives.ADVERSARIAL, *archives.random_reports(12, seed=3, longest=30)]


@pytest.fixture(scope="session", params=["radgraph", "radgraph-xl", "modern-radgraph-xl"])
def archive(request, tmp_path_factory):
    """(unpacked archive, dataset) of the three model types."""
    folder = tmp_path_factory.mktemp(request.param)
    config = archives.tiny_modern() if request.param.startswith("modern") else archives.TINY
    return archives.write_archive(folder, request.param, encoder=config), request.param


@pytest.fixture(scope="session")
def xl(tmp_path_factory):
    return archives.write_archive(tmp_path_factory.mktemp("xl"))


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


LONG = " ".join(archives.random_reports(8, seed=11))


@pytest.mark.parametrize(
    ("size", "budget"), [(1, 10**6), (4, 10**6), (16, 10**6), (16, 1)], ids=str
)
def test_batch_order_and_budget_change_nothing(xl, size, budget):
    """Also a row budget below a single report, and pairs in several chunks."""
    reports = [*REPORTS, LONG]
    together = official(RadGraph(xl).annotate(reports))
    radgraph = RadGraph(xl, token_budget=budget)
    turned = list(enumerate(reports))[::-1]
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
DP, AN, DA, UN = archives.XL_NER[1:5]
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


# Entities: exact match, presence by label, spans by character.
FIRST = kinds_of(archives.FIRST_NER)
XL = kinds_of(archives.XL_NER)


def entities(report: str, *found, kinds=XL):
    split = split_words(report, "radgraph-xl")
    words = [word for word, _, _ in split]
    graph = build_graph(words, [(a, b) for _, a, b in split], 1, found, [])
    return entities_of([report], [graph], kinds)


def test_presence_and_kind():
    assert {label: KINDS[kind] for label, kind in XL.items()} == {
        "Observation::definitely present": "OBS-DP",
        "Anatomy::definitely present": "ANAT-DP",
        "Observation::definitely absent": "OBS-DA",
        "Observation::uncertain": "OBS-U",
        "Observation::measurement::definitely present": "OBS-DP",
        "Anatomy::uncertain": "ANAT-DP",
    }
    assert [KINDS[kind] for kind in FIRST.values()] == archives.FIRST_NER[1:]
    found = entities("edema lung effusion mass", (0, 0, DP), (1, 1, AN), (2, 2, DA), (3, 3, UN))
    assert found.presence.tolist() == [1, -1, 0, 1]
    with pytest.raises(UserError, match="'Event::start' is no RadGraph label"):
        kinds_of(["", "Event::start"])


def test_equal_where_text_and_class_are():
    found = entities("Edema edema EDEMA lung Lung", (0, 0, DP), (1, 1, DA), (2, 2, UN), (3, 3, AN),
                     (4, 4, DP))  # fmt: skip
    cosines = found.embedding.astype(np.float64) @ found.embedding.astype(np.float64).T
    assert (cosines[:3, :3] == 1).all()
    # "lung" as anatomy and as observation are two things.
    assert np.abs(cosines[:3, 3:]).max() < 0.6 > abs(cosines[3, 4])
    assert len(set(found.key.tolist())) == 5
    again = entities("small edema", (1, 1, DA))
    assert again.key[0] == found.key[1]
    assert again.embedding[0].tobytes() == found.embedding[1].tobytes()


def test_spans_and_sentences():
    report = "No effusion.\n\nSmall  left\nedema. 2."
    found = entities(report, (1, 1, DA), (3, 5, DP), (5, 6, DP), (6, 6, DP))
    assert [report[a:b] for a, b in found.span] == ["effusion", "Small  left\nedema", "edema.", "."]
    assert found.sentence.tolist() == [0, 1, 1, 1]
    assert found.text[1] == "small left edema"


def test_an_entity_over_two_sentences_is_cut_and_one_outside_every_sentence_left_out():
    report = "No effusion. Edema"
    found = entities(report, (1, 3, DP))
    assert [report[a:b] for a, b in found.span] == ["effusion."]
    assert entities("...\n\nEdema", (0, 0, DP), (1, 1, DP)).text == ["edema"]


@pytest.mark.parametrize("reports", [[], [""], [" "], list(archives.ADVERSARIAL)])
def test_any_report_gives_valid_entities(xl, reports):
    found = RadGraphExtractor(xl).extract(reports)
    assert found.reports == reports
    if not any(report.strip() for report in reports):
        assert len(found) == 0


NER = "_ner._ner_scorers.radgraph-xl__ner_labels.1._module"


def refused(place, text: str, **options) -> None:
    with pytest.raises(UserError, match=text) as caught:
        RadGraph(place, **options)
    assert "\n" not in str(caught.value)


@pytest.fixture
def copy(xl, tmp_path):
    """An archive of its own, whose weights are those of `xl`."""
    return shutil.copytree(xl, tmp_path / "copy")


def test_packed_is_read_as_unpacked_and_the_hub_is_asked_only_when_told(xl, tmp_path, monkeypatch):
    packed = archives.pack(xl, tmp_path / "radgraph-xl.tar.gz")
    fetch = Mock(return_value=str(packed))
    monkeypatch.setattr(hub, "hf_hub_download", fetch)
    report = ["small left effusion. no edema"]
    assert RadGraph(packed).annotate(report) == RadGraph(xl).annotate(report)
    fetch.assert_not_called()
    assert RadGraph("hub").model_type == "radgraph-xl"
    fetch.assert_called_once_with("StanfordAIMI/RRG_scorers", "radgraph-xl.tar.gz")


def test_another_place_of_the_encoder(xl, copy):
    config = json.loads((copy / "config.json").read_text())
    for part in (
        config["dataset_reader"]["token_indexers"],
        config["model"]["embedder"]["token_embedders"],
    ):
        part["bert"]["model_name"] = "nobody/never-downloaded"
    (copy / "config.json").write_text(json.dumps(config))
    refused(copy, "radgraph: no encoder nobody/never-downloaded .*: pass encoder=")
    report = ["small left effusion. no edema"]
    again = RadGraph(copy, encoder=xl.parent / "encoder")
    assert again.annotate(report) == RadGraph(xl).annotate(report)


def test_wrong_archive(xl, copy, tmp_path):
    refused(xl, "is an archive of radgraph-xl, wanted radgraph;", model_type="radgraph")
    for file in copy.glob("vocabulary/radgraph-xl*"):
        file.rename(file.with_name(file.name.replace("radgraph-xl", "echograph")))
    refused(copy, "is an archive of echograph, wanted one of radgraph, ")
    (tmp_path / "text.tar.gz").write_text("no archive")
    refused(tmp_path / "text.tar.gz", r"text.tar.gz is no .tar.gz \(Not a gzipped file")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "empty lacks config.json and weights.th; wanted one of")


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("model", "modules", "coref", "coref_prop"), 2, r"another model \(coref_prop 2, "),
        (("model", "loss_weights", "relation"), 0.0, "'relation': 0.0"),
        (("model", "feedforward_params"), {}, "not that of a RadGraph model .*num_layers"),
        (("dataset_reader", "max_span_width"), 9, "max_span_width 9 of 8"),
        (("model", "feedforward_params", "hidden_dims"), [150], "2 layers of .150."),
    ],
)
def test_settings_of_another_model(copy, path, value, text):
    config = json.loads((copy / "config.json").read_text())
    *way, last = path
    part = config
    for key in way:
        part = part[key]
    part[last] = value
    (copy / "config.json").write_text(json.dumps(config))
    refused(copy, text)


def test_keys_that_differ_are_named(xl, copy):
    state = torch.load(xl / "weights.th")
    del state[f"{NER}.bias"]
    state["_ner.new"] = torch.zeros(1)
    state["_endpoint_span_extractor._span_width_embedding.weight"] = torch.zeros(3, 3)
    torch.save(state, copy / "weights.th")
    refused(
        copy,
        rf"lacks {NER}.bias; holds _ner.new besides; has .*width_embedding.weight \[3, 3\] "
        r"where \[8, 6\] is wanted; wanted one of radgraph.tar.gz",
    )


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04broken"])
def test_weights_that_are_no_checkpoint(copy, content):
    (copy / "weights.th").write_bytes(content)
    refused(copy, "weights.th of .* is no checkpoint")


def test_fingerprint_tells_models_apart(xl, tmp_path):
    first = RadGraph(xl).fingerprint
    assert RadGraph(archives.pack(xl, tmp_path / "x.tar.gz"), case="master").fingerprint == first
    assert RadGraph(xl, dtype="bf16").fingerprint != first

    def change(state):
        state[f"{NER}.bias"][0] += 1

    assert RadGraph(archives.write_archive(tmp_path, change=change)).fingerprint != first
