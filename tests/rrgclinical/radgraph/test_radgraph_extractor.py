"""RadGraph's entities for EditGRPO: exact match, presence by label, spans by character."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from rrgclinical import hub
from rrgclinical.entities import KINDS
from rrgclinical.radgraph import RadGraph, RadGraphExtractor
from rrgclinical.radgraph.extractor import entities_of, kinds_of
from rrgclinical.radgraph.graph import build_graph
from rrgclinical.radgraph.words import split_words
from rrgtrain.errors import UserError
from tests.rrgclinical.radgraph import archives

FIRST = kinds_of(archives.FIRST_NER)
XL = kinds_of(archives.XL_NER)
DP, AN, DA, UN = archives.XL_NER[1:5]


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


def test_an_entity_over_two_sentences_is_cut_at_the_first():
    report = "No effusion. Edema"
    found = entities(report, (1, 3, DP))
    assert [report[a:b] for a, b in found.span] == ["effusion."]


def test_an_entity_outside_every_sentence_is_left_out():
    report = "...\n\nEdema"
    found = entities(report, (0, 0, DP), (1, 1, DP))
    assert found.text == ["edema"]


@pytest.mark.parametrize("reports", [[], [""], [" "], list(archives.ADVERSARIAL)])
def test_any_report_gives_valid_entities(xl, reports):
    found = RadGraphExtractor(xl).extract(reports)
    assert found.reports == reports
    if not any(report.strip() for report in reports):
        assert len(found) == 0


# Test that a file that is no RadGraph archive is named in one line.
NER = "_ner._ner_scorers.radgraph-xl__ner_labels.1._module"


def refused(place, text: str, **options) -> None:
    with pytest.raises(UserError, match=text) as caught:
        RadGraph(place, **options)
    assert "\n" not in str(caught.value)


@pytest.fixture
def copy(xl, tmp_path):
    """An archive of its own, whose weights are those of `xl`."""
    place = tmp_path / "copy"
    (place / "vocabulary").mkdir(parents=True)
    for file in (*xl.glob("*.*"), *xl.glob("vocabulary/*")):
        (place / file.relative_to(xl)).write_bytes(file.read_bytes())
    return place


def test_packed_is_read_as_unpacked(xl, tmp_path):
    packed = archives.pack(xl, tmp_path / "radgraph-xl.tar.gz")
    report = ["small left effusion. no edema"]
    assert RadGraph(packed).annotate(report) == RadGraph(xl).annotate(report)


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


def test_the_hub_is_asked_only_when_told(xl, tmp_path, monkeypatch):
    packed = archives.pack(xl, tmp_path / "radgraph-xl.tar.gz")
    asked = []

    def fetch(repository, file):
        asked.append((repository, file))
        return str(packed)

    monkeypatch.setattr(hub, "hf_hub_download", fetch)
    assert RadGraph("hub").model_type == "radgraph-xl"
    assert asked == [("StanfordAIMI/RRG_scorers", "radgraph-xl.tar.gz")]
    RadGraph(xl)
    assert len(asked) == 1


def test_fingerprint_tells_models_apart(xl, tmp_path):
    first = RadGraph(xl).fingerprint
    assert RadGraph(archives.pack(xl, tmp_path / "x.tar.gz"), case="master").fingerprint == first
    assert RadGraph(xl, dtype="bf16").fingerprint != first

    def change(state):
        state[f"{NER}.bias"][0] += 1

    assert RadGraph(archives.write_archive(tmp_path, change=change)).fingerprint != first
