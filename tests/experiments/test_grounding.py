"""Boxes beside sentences: pairs by hand, both data sets, refusals, and a demo end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import grounding
from experiments.grounding import measure, parse
from rrgclinical import build_labeller
from rrgclinical.common.plain_yaml import read_values
from rrgdata.load import load_studies
from rrgtrain.errors import RewardError, UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings
from tests.rrgdata.sources.test_padchest_gr import REPORTS, write
from tests.rrgtrain.common import phantoms
from tests.rrgtrain.runs import TINY_RUN, command

TRUTH = "Large left pleural effusion [50 50 90 90]. Right pneumothorax [0 0 20 40]. No edema."
TERMS = {f"experiments.grounding:{name}": 1.0 for name in ("grounding_iou", "grounding_f1")}
CASES = read_values(Path(__file__).with_name("cases.yaml").read_text())


@pytest.mark.parametrize(("old", "new", "iou", "f1"), CASES["grounding"])
def test_pairs_by_hand(old, new, iou, f1) -> None:
    report = TRUTH.replace(old, new, 1)
    rows = measure([report, "Normal chest.", report], [TRUTH, "Clear lungs.", "Clear lungs."])
    assert rows["grounding_iou"].tolist() == pytest.approx([iou, 1, 0])
    assert rows["grounding_f1"].tolist() == pytest.approx([f1, 1, 0])


def test_phantoms_have_boxes_where_their_findings_are() -> None:
    studies = load_studies("experiments.grounding:load", phantoms()).studies
    reports = [study.report or "" for of in studies.values() for study in of]
    labels = build_labeller("rules").label([*reports, *(parse(report)[0] for report in reports)])
    assert (labels[: len(reports)] == labels[len(reports) :]).all()
    for values in measure(reports, reports).values():
        assert values.tolist() == [1.0] * len(reports)
    boxed = [(text, boxes) for text, boxes in map(parse, reports) if boxes]
    assert all(0 <= a < c <= 100 and 0 <= b < d <= 100 for _, of in boxed for _, (a, b, c, d) in of)
    for text, ((_, (left, _, right, _)), *more) in boxed:
        if not more and "left" in text and "right" not in text:
            assert left + right > 100, "the patient's left is the image's right"


def test_padchest_gr_and_what_has_no_boxes(tmp_path) -> None:
    root = write(tmp_path)
    studies = load_studies("experiments.grounding:load", root).studies
    assert studies["val"][0].report == "Cardiomegaly [10 20 30 40]."
    entries = json.loads((root / REPORTS).read_text())
    for boxes, line in (([[0.3, 0.2, 0.1, 0.4]], "has box"), ([], "no sentence has a box")):
        for entry in entries:
            for finding in entry["findings"]:
                finding["boxes"] = boxes
        (root / REPORTS).write_text(json.dumps(entries))
        with pytest.raises(UserError, match=line):
            load_studies("experiments.grounding:load", root)
    with pytest.raises(UserError, match="has no boxes; wanted PadChest-GR, or phantoms"):
        load_studies("experiments.grounding:load", Path(__file__).parent)
    with pytest.raises(RewardError, match="study 0 has no boxes; use data.source"):
        RewardService(RewardSettings(terms=TERMS))(["a"], ["b"])


def test_the_demo_of_it_runs_end_to_end(tmp_path, capsys) -> None:
    terms = ", ".join(f"{name}: 1" for name in [*TERMS, "label_f1"])
    prompt = Path(grounding.__file__).with_name("grounded_prompt.txt")
    words = ["data.source=experiments.grounding:load", f"data.root={phantoms()}"]
    words += [f"reward.terms={{{terms}}}", f"policy.prompt={prompt}"]
    command("demo", "--out", "run", *TINY_RUN, *words, cwd=tmp_path, status=0)
    assert grounding.main([str(tmp_path / "run")]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["system", "reports", "grounding_iou", "grounding_f1"]
    assert len(rows) >= 2 and all(" 4 " in row and "]" in row for row in rows)
