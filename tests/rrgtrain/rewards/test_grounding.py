"""Boxes beside sentences: pairs by hand, both data sets, refusals, and a demo end to end."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rrgclinical import build_labeller
from rrgclinical.grounding import GROUNDING, parse_boxes
from rrgclinical.rules import split_sentences
from rrgdata.load import open_studies
from rrgdata.phantom import PhantomConfig, sample_case, write_report
from rrgdata.settings import DataSettings
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.run.checked import check_settings
from rrgtrain.schema import Recipe, RewardSettings
from tests.rrgdata.sources.test_padchest_gr import ENTRIES, REPORTS, entry, found, write
from tests.rrgtrain.common import phantoms
from tests.rrgtrain.runs import TINY_RUN, command

TRUTH = "Large left pleural effusion [50 50 90 90]. Right pneumothorax [0 0 20 40]. No edema."
TERMS = dict.fromkeys(GROUNDING, 1.0)
BOXED = PhantomConfig(boxes=True)


@pytest.mark.parametrize(
    ("old", "new", "iou", "f1"),
    [
        ("", "", 1.0, 1.0),
        ("[50 50 90 90]", "[50 50 90 70] [50 70 90 90]", 1.0, 1.0),  # their union
        ("[50 50 90 90]", "[50 50 70 90]", 0.75, 1.0),  # a half is in its place
        ("[50 50 90 90]", "[50 50 69 90]", 0.7375, 0.5),
        (" [0 0 20 40]", "", 0.5, 2 / 3),
        ("[50 50 90 90]", "[90 0 10 5]", 0.5, 0.5),  # a box that is none costs and never pays
        ("[50 50 90 90]", "[50 50 90 101]", 0.5, 0.5),
        ("No edema.", "Cardiomegaly [40 40 80 80].", 1.0, 0.8),
        ("Right pneumothorax", "No pneumothorax", 0.5, 2 / 3),
    ],
)
def test_pairs_by_hand(old, new, iou, f1) -> None:
    report = TRUTH.replace(old, new, 1)
    reports, references = [report, "Normal.", report], [TRUTH, "Clear lungs.", "Clear lungs."]
    rows = RewardService(RewardSettings(terms=TERMS))(reports, references)
    assert rows["grounding_iou"].tolist() == pytest.approx([iou, 1, 0])
    assert rows["grounding_f1"].tolist() == pytest.approx([f1, 1, 0])


def test_findings_of_one_name_are_matched_one_to_one_by_their_boxes() -> None:
    nodules = ["A nodule [0 0 10 10].", "A nodule [50 50 60 60].", "Another nodule [50 60 60 70]."]
    orders = (0, 1, 2), (2, 0, 1), (1,), (1, 1)
    reports = [" ".join(nodules[k] for k in order) for order in orders]
    rows = RewardService(RewardSettings(terms=TERMS))(reports, [reports[0]] * 4)
    assert rows["grounding_iou"].tolist() == pytest.approx([1, 1, 1 / 3, 1 / 3])
    assert rows["grounding_f1"].tolist() == pytest.approx([1, 1, 0.5, 0.4])


def test_phantoms_have_boxes_where_their_findings_are() -> None:
    cases = [sample_case(BOXED, (0, 0, number)) for number in range(12)]
    reports, plain = (
        [write_report(case, case.findings, case.negated, config) for case in cases]
        for config in (BOXED, replace(BOXED, boxes=False))
    )
    parsed = [parse_boxes(report) for report in reports]
    assert [text for text, _ in parsed] == plain, "the words are those without boxes"
    labels = build_labeller("rules").label([*reports, *plain])
    assert (labels[: len(cases)] == labels[len(cases) :]).all()
    scores = RewardService(RewardSettings(terms=TERMS))(reports, reports)
    assert all(scores[name].tolist() == [1.0] * len(reports) for name in TERMS)
    boxes = [box for _, of in parsed for _, box in of]
    assert boxes and all(0 <= a < c <= 100 and 0 <= b < d <= 100 for a, b, c, d in boxes)
    for text, ((_, (left, _, right, _)), *more) in (one for one in parsed if one[1]):
        if not more and "left" in text and "right" not in text:
            assert left + right > 100, "the patient's left is the image's right"


def test_phantoms_without_boxes_are_those_of_before() -> None:
    assert PhantomConfig().digest() != BOXED.digest()
    assert PhantomConfig().digest().startswith("a921435a8645")


def test_padchest_gr_has_its_boxes_and_a_bad_one_is_told(tmp_path) -> None:
    root = write(tmp_path)
    (study,) = found(root, boxes=True).studies["val"]
    assert study.report == "Cardiomegaly [10 20 30 40]."
    assert found(root).studies["val"][0].report == "Cardiomegaly."
    several = ("Nodule at 2.5 cm. Is it new?", "A (left) cyst.", "Edema.\n\nNo effusion")
    write(root, [entry(1, *several, "")])
    (study,), (plain,) = (found(root, boxes=on).studies["train"] for on in (True, False))
    text, boxes = parse_boxes(study.report)
    assert text == plain.report and len(boxes) == len(split_sentences(text)) == 5
    for bad in ([0.3, 0.2, 0.1, 0.4], [0, 0, 1], [0, 0, 1, 2], "box", [0, 0, True, 1]):
        entries = json.loads(json.dumps(ENTRIES))
        entries[1]["findings"][0]["boxes"] = [bad]
        (root / REPORTS).write_text(json.dumps(entries))
        (broken,) = found(root, boxes=True).broken
        assert "(s2)" in broken.where and "has a box that is no" in broken.why


def test_boxes_are_refused_where_a_data_set_has_none(tmp_path) -> None:
    data = DataSettings(source="iu_xray", root=str(phantoms()), boxes=True)
    with pytest.raises(UserError, match="no report under .* has a box; set it false"):
        open_studies(data, tmp_path, quiet=True)
    recipe = load_config(Recipe, "grounded", ["data.boxes=false"])
    with pytest.raises(UserError, match="grounding_f1, which wants boxes; set data.boxes=true"):
        check_settings(recipe, sft=False, rl=False)


def test_the_demo_of_it_runs_end_to_end(tmp_path) -> None:
    command("demo", "grounded", "--out", "run", *TINY_RUN, cwd=tmp_path, status=0)
    page = (tmp_path / "run" / "report.html").read_text()
    assert '<svg class="boxes"' in page and "<title>Reference: " in page
    assert "grounding F1" in page
