"""Agreement with human codes by hand and on IU X-Ray, and tables of docs of what is installed."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from experiments import data_files, metrics, processors, readers, trainers
from experiments.human_codes import (
    CODED,
    MENTIONED,
    agreement,
    load_coded_reports,
    main,
    uncertain_coded,
)
from rrgclinical import OBSERVATIONS, build_labeller
from tests.real_data import IU_XRAY

HEADER = ["filename", "Atelectasis", "Cardiomegaly", "Effusion", "Mass", "Nodule", "Pneumonia",
          "Pneumothorax", "Consolidation", "Edema"]  # fmt: skip


@pytest.fixture
def directory(tmp_path):
    texts = {"A1": ("Cardiomegaly.", "No effusion."), "A2": ("A nodule.", ""), "A3": ("", "Edema.")}
    annotation = {"val": [{"id": f"{name}_IM-1", "report": ""} for name in texts], "test": []}
    (tmp_path / "annotation.json").write_text(json.dumps(annotation))
    lines = [json.dumps({"id": k, "findings": f, "impression": i}) for k, (f, i) in texts.items()]
    (tmp_path / "sections.jsonl").write_text("\n".join(lines))
    with (tmp_path / "mesh_labels_14.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, HEADER, restval="0")
        writer.writeheader()
        writer.writerow({"filename": "A1", "Cardiomegaly": "1"})
        writer.writerow({"filename": "A2", "Nodule": "1"})
        writer.writerow({"filename": "A3", "Pneumonia": "1"})
    return tmp_path


def test_loading_joins_the_three_files(directory):
    coded = load_coded_reports(directory, "val")
    assert coded.ids == ["A1", "A2", "A3"]
    assert coded.reports == ["Cardiomegaly.\n\nNo effusion.", "A nodule.", "Edema."]
    assert coded.truth[1, list(CODED).index("Lung Lesion")]
    assert coded.truth.sum() == 3


def test_scores_by_hand(directory):
    coded = load_coded_reports(directory, "val")
    labels = build_labeller("rules").label(coded.reports)
    result = agreement(labels, coded.truth, resamples=50)
    # hits: cardiomegaly, lesion; spurious: edema; missed: pneumonia.
    assert result.scores["precision"]["micro"][0] == pytest.approx(2 / 3)
    assert result.scores["recall"]["micro"][0] == pytest.approx(2 / 3)
    assert result.scores["f1"]["macro"][0] == pytest.approx(2 / 8)
    assert result.scores["f1"]["Cardiomegaly"][0] == 1.0
    value, low, high = result.scores["f1"]["micro"]
    assert low <= value <= high
    # one of one was found, and one of one was not: neither is certain
    assert result.scores["f1"]["Cardiomegaly"][1] < 0.9
    assert result.scores["f1"]["Pneumonia"][1] == 0.0 and result.scores["f1"]["Pneumonia"][2] > 0.3


def test_uncertain_ones_are_counted_with_their_codes():
    labels, truth = np.zeros((3, 14), dtype=np.int8), np.zeros((3, 8), dtype=bool)
    labels[:, OBSERVATIONS.index("Cardiomegaly")] = 3, 3, 1
    truth[[0, 2], list(CODED).index("Cardiomegaly")] = True
    counts = uncertain_coded(labels, truth)
    assert counts == {name: (1, 2) if name == "Cardiomegaly" else (0, 0) for name in CODED}
    with pytest.raises(ValueError, match=r"\(3, 8\) against codes of \(2, 8\)"):
        uncertain_coded(labels, truth[:2])


def test_command(directory, capsys):
    assert main(["--data", str(directory), "--split", "val", "--resamples", "20"]) == 0
    text = capsys.readouterr().out
    # as F1 and rewards count them, and the strict figure beside it
    assert text.index("positive = stated or uncertain") < text.index("positive = stated (strict)")
    assert "Lung Lesion" in text and "coded of the uncertain ones: " in text
    assert main(["--data", str(directory), "--labeller", "nonesuch"]) == 2
    assert "unknown labeller 'nonesuch'" in capsys.readouterr().err


@pytest.mark.realdata
@pytest.mark.skipif(not IU_XRAY.is_dir(), reason=f"no real data at {IU_XRAY}; set RRG_DATA")
@pytest.mark.parametrize("split", ["train", "val"])
def test_rules_agree_with_the_curators_of_iu_xray(split):
    coded = load_coded_reports(IU_XRAY, split)
    labels = build_labeller("rules").label(coded.reports)
    assert agreement(labels, coded.truth).scores["f1"]["micro"][0] >= 0.88
    assert agreement(labels, coded.truth, positive=MENTIONED).scores["f1"]["micro"][0] >= 0.83


@pytest.mark.realdata
@pytest.mark.skipif(not IU_XRAY.is_dir(), reason=f"no real data at {IU_XRAY}; set RRG_DATA")
def test_no_common_observation_is_read_badly():
    coded = load_coded_reports(IU_XRAY, "train+val")
    found = agreement(build_labeller("rules").label(coded.reports), coded.truth, resamples=2)
    common = [n for n, count in zip(CODED, found.positives, strict=True) if count >= 20]
    assert len(common) >= 6
    assert min((found.scores["f1"][name][0], name) for name in common) >= (0.7, "")


MODULES = (data_files, metrics, processors, readers, trainers)
TABLES = {module.__name__: module.TABLE for module in MODULES}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_page_has_the_rows_of_what_is_installed(table, capsys) -> None:
    # METEOR's program takes long to start; `make night` has it
    packages = {k: rows for k, rows in table.packages.items() if not k.startswith("java")}
    table = replace(table, packages=packages)
    assert table.main(["--check", "rrgkern"]) == 0, capsys.readouterr().out


def test_what_differs_is_shown(monkeypatch, capsys) -> None:
    monkeypatch.setattr(trainers, "EPS", 0.3)
    assert trainers.TABLE.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "not on other-trainers.md: | rrgkern | grpo |" in said
    assert "on other-trainers.md alone: | rrgkern | grpo |" in said
