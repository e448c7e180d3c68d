"""Marks, redlines and kept samples of a run."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from rrgclinical import build_extractor
from rrgreport import EditSample, Sample, WeightSample, mark_reports, read_samples, write_samples
from rrgreport.redline import ADDED, KEPT, REMOVED, Piece, redline
from rrgreport.samples import png, weighed_pieces
from rrgtrain.errors import UserError


def test_samples_survive_the_disk(tmp_path) -> None:
    image = Image.linear_gradient("L")
    study = Sample(
        "s\u20281",
        [image, png(image)],
        "Größe <b>\u2028normal</b>.",
        {"SFT": "", "RL": "x"},
        indication="cough",
        views=("frontal",),
        labels=[0] * 13 + [1],
        facts={"RL": {"facts": ["x"]}},
    )
    weights = WeightSample("s1", [("x", 1.5)], reference="r", step=4, reward=0.5, advantage=-0.25)
    edit = EditSample("s1", "a.", "b.", [("b", "a.", "b.")], "b.", 0.1, None, step=7)
    write_samples(tmp_path / "s.jsonl", [study, edit, weights])
    back, edit_back, weights_back = read_samples(tmp_path / "s.jsonl")
    assert (edit_back, weights_back) == (edit, weights)
    assert isinstance(back, Sample) and back.images == [png(image)] * 2
    assert (back.id, back.reference, back.outputs) == (study.id, study.reference, study.outputs)
    assert (
        list(back.views) == ["frontal"]
        and back.facts == study.facts
        and back.labels == study.labels
    )


def test_no_file_means_no_samples_and_a_bad_line_is_named(tmp_path) -> None:
    path = tmp_path / "s.jsonl"
    assert read_samples(path) == []
    for line in ('{"kind": "study"}', '{"kind": "other"}', "{", "[]"):
        path.write_text("\n" + line + "\n")
        with pytest.raises(UserError, match=r"s\.jsonl:2: not a sample"):
            read_samples(path)


def test_a_study_without_its_labels_or_image_is_named(tmp_path) -> None:
    path = tmp_path / "s.jsonl"
    study = Sample("s1", [Image.linear_gradient("L")], "Clear.", {}, labels=[0] * 14)
    postscript = base64.b64encode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n").decode()
    for key, value, told in (
        ("labels", [0] * 13 + [7], r"wanted 14 class ids, 0 to 3"),
        ("labels", [0] * 13, "wanted 14 class ids"),
        ("labels", [0.5] * 14, "wanted 14 class ids"),
        ("images", ["AAAA"], "3 bytes are not an image"),
        ("images", [postscript], "are not an image; wanted PNG bytes"),
    ):
        write_samples(path, [study])
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
        with pytest.raises(UserError, match=rf"s\.jsonl:1: not a sample \(.*{told}"):
            read_samples(path)


OF_MARKS = "The heart is enlarged. No pneumothorax. There is a left pleural effusion."


def marks(report: str, reference: str = OF_MARKS) -> tuple[dict[str, str], list[str]]:
    marked = mark_reports([report], [reference], build_extractor("rules"))[0]
    assert "".join(text for text, _ in marked.pieces) == report
    return {text: mark for text, mark in marked.pieces if text.strip()}, marked.missing


def test_marks_of_a_mixed_report() -> None:
    report = "Two views.  No pneumothorax.\nNo left pleural effusion. There is a rib fracture."
    found, missing = marks(report)
    assert found["Two views."] == "neutral"
    assert found["No pneumothorax."] == "correct"
    assert found["No left pleural effusion."] == "spurious"
    assert found["There is a rib fracture."] == "spurious"
    assert missing == ["The heart is enlarged.", "There is a left pleural effusion."]


def test_marks_of_the_reference_itself_of_half_of_a_sentence_and_of_nothing() -> None:
    found, _ = marks("There is a left pleural effusion and pneumothorax.")
    assert set(found.values()) == {"partly"}
    found, missing = marks(OF_MARKS)
    assert set(found.values()) == {"correct"} and missing == []
    found, missing = marks("")
    assert found == {} and len(missing) == 3
    # without a reference nothing is marked
    assert marks("No pneumothorax.", " ") == ({"No pneumothorax.": "neutral"}, [])
    assert marks("", "") == ({}, [])


def test_redline_replacement_deletion_addition() -> None:
    before = "A one. B two. C three."
    assert redline(before, "A one. X. C three.", [("b", "B two.", "X.")]) == [
        Piece("A one. ", KEPT),
        Piece("B two.", REMOVED, "b"),
        Piece("X.", ADDED, "b"),
        Piece(" C three.", KEPT),
    ]
    assert redline(before, "A one. C three.", [("c", "B two.", "")])[1] == Piece(
        "B two.", REMOVED, "c"
    )
    assert redline(before, before + " D.", [("d", "", "D.")])[-1] == Piece("D.", ADDED, "d")
    assert redline("", "D.", [("e", "", "D.")]) == [Piece("D.", ADDED, "e")]
    assert redline(before, before, []) == [Piece(before, KEPT)]
    steps = [("d", "", "D."), ("b", "D.", "E.")]  # an addition taken back
    assert redline("A.", "A. E.", steps) == [Piece("A.", KEPT), Piece("E.", ADDED, "b")]


sentence = st.sampled_from(["A one.", "B two.", "C three.", "No edema.", "ß ü."])


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(sentence, max_size=5),
    st.lists(sentence, max_size=5),
    st.lists(st.tuples(st.sampled_from("abcde"), sentence, sentence), max_size=4),
)
def test_redline_always_reads_as_before_and_after(before, after, steps) -> None:
    pieces = redline(" ".join(before), " ".join(after), steps)

    def words(*kinds: str) -> list[str]:
        return " ".join(p.text for p in pieces if p.kind in kinds).split()

    assert words(KEPT, REMOVED) == " ".join(before).split()
    assert words(KEPT, ADDED) == " ".join(after).split()


def test_pieces_join_to_the_text_and_share_characters() -> None:
    spans = [(0, 1), (1, 2), (1, 2), (2, 4), (4, 4)]
    pieces = weighed_pieces("aé b", spans, [1.0, 1.5, 2.5, 1.25, 9.0])
    assert pieces == [("a", 1.0), ("é", 2.5), (" b", 1.25)]
    assert "".join(text for text, _ in pieces) == "aé b"
