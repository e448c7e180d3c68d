"""CheXpert Plus's own files: studies of several rows, labels by section and by readers, damage."""

from __future__ import annotations

import csv
import json
import math
from functools import partial

import pytest

from rrgclinical.labels import OBSERVATIONS
from tests.rrgdata.common import broken, by_id, catalogue_of, refused

SOURCE = "chexpert_plus"
found = partial(catalogue_of, SOURCE)


COLUMNS = (
    *("path_to_image", "path_to_dcm", "frontal_lateral", "ap_pa", "deid_patient_id"),
    *("patient_report_date_order", "report", "section_narrative", "section_clinical_history"),
    *("section_history", "section_comparison", "section_technique", "section_procedure_comments"),
    *("section_findings", "section_impression", "section_end_of_impression", "section_summary"),
    *("section_accession_number", "age", "sex", "split"),
)
TABLE = "df_chexpert_plus_240401.csv"


def row(patient, study, view, order, **cells):
    split = cells.setdefault("split", "train")
    path = f"{split}/patient{patient:05}/study{study}/{view}.jpg"
    kind = "Lateral" if "lateral" in view else "Frontal"
    filled = {
        "path_to_image": path,
        "path_to_dcm": path.replace(".jpg", ".dcm"),
        "frontal_lateral": kind,
        "deid_patient_id": f"patient{patient:05}",
        "patient_report_date_order": order,
        "section_findings": f"Findings of {patient}, {study}.",
        "section_impression": f"Impression of {patient}, {study}.",
    }
    return {name: (filled | cells).get(name, "") for name in COLUMNS}


ROWS = [
    row(1, 2, "view1_frontal", 2, section_clinical_history="Cough.", section_technique="AP."),
    row(1, 2, "view2_lateral", 2),
    row(1, 1, "view1_frontal", 1, section_findings="", section_history="Fever,\nand more."),
    row(2, 1, "view1_frontal", 1, section_comparison="None."),
    row(64541, 1, "view1_frontal", 1, split="valid"),
]


def write(root, rows=ROWS, base="PNG/PNG", suffix=".png"):
    with (root / TABLE).open("w", newline="") as lines:
        table = csv.DictWriter(lines, COLUMNS)
        table.writeheader()
        table.writerows(rows)
    if base is not None:
        for entry in rows:
            image = (root / base / entry["path_to_image"]).with_suffix(suffix)
            image.parent.mkdir(parents=True, exist_ok=True)
            image.write_bytes(b"x")
    return root


def labelled(root, name, entries, folder="chexbert_labels"):
    (root / folder).mkdir(exist_ok=True)
    lines = [
        json.dumps({"path_to_image": path} | dict.fromkeys(OBSERVATIONS) | labels)
        for path, labels in entries
    ]
    (root / folder / name).write_text("\n".join(lines) + "\n")


def human(root, name, column, rows):
    with (root / name).open("w", newline="") as lines:
        table = csv.DictWriter(lines, (column, *OBSERVATIONS))
        table.writeheader()
        table.writerows({column: path} | dict.fromkeys(OBSERVATIONS, "0") | c for path, c in rows)


def annotate(root, train=(), val=(), test=()):
    lists = {"train": [*train], "val": [*val], "test": [*test]}
    (root / "annotation.json").write_text(json.dumps(lists))


def at(labels, name):
    return labels[OBSERVATIONS.index(name)]


def test_rows_of_one_study_are_one_study_with_its_prior(tmp_path):
    catalogue = found(write(tmp_path), prior="last")
    study = by_id(catalogue)["patient00001_study2"]
    base = tmp_path / "PNG/PNG/train/patient00001"
    assert [(i.path, i.view, i.prior) for i in study.images] == [
        (base / "study2/view1_frontal.png", "frontal", False),
        (base / "study2/view2_lateral.png", "lateral", False),
        (base / "study1/view1_frontal.png", "frontal", True),
    ]
    assert all(image.path.is_file() for image in study.images)
    assert study.report == "Findings of 1, 2." and study.labels is None and not study.expert
    assert (study.indication, study.technique) == ("Cough.", "AP.")
    assert study.patient == "train/patient00001"
    assert {split: len(studies) for split, studies in catalogue.studies.items()} == {
        "train": 2,
        "val": 1,
    }
    assert not catalogue.broken


def test_the_prior_goes_by_the_order_and_not_by_the_place(tmp_path):
    orders = {1: 5, 2: 3, 3: 10, 4: 3}
    rows = [row(1, study, "view1_frontal", order) for study, order in orders.items()]
    studies = by_id(found(write(tmp_path, rows), prior="last"))
    priors = {
        s.id[-6:]: [i.path.parent.name for i in s.images if i.prior] for s in studies.values()
    }
    assert priors["study3"] == ["study1"] and priors["study1"][0] in ("study2", "study4")
    assert priors["study2"] == priors["study4"] == []
    assert all(not i.prior for s in by_id(found(tmp_path)).values() for i in s.images)


def test_a_prior_is_of_the_same_split_or_of_train(tmp_path):
    """By study, a split would prompt a train study with a test study's images."""
    rows = [row(1, study, "view1_frontal", study) for study in (1, 2, 3, 4)]
    of = [{"image_path": [f"train/patient00001/study{n}/view1_frontal.png"]} for n in range(5)]
    annotate(write(tmp_path, rows), train=[of[1], of[3]], test=[of[2], of[4]])
    catalogue = found(tmp_path, prior="last")
    priors = {
        s.id[-6:]: [i.path.parent.name for i in s.images if i.prior]
        for s in by_id(catalogue).values()
    }
    assert priors == {
        "study1": [],
        "study2": ["study1"],
        "study3": ["study1"],
        "study4": ["study3"],
    }
    assert any(note.startswith("1 studies are no prior of later") for note in catalogue.notes)


def test_a_prior_is_no_frontal_image_of_the_study(tmp_path):
    rows = [row(1, 1, "view1_frontal", 1), row(1, 2, "view1_lateral", 2)]
    catalogue = found(write(tmp_path, rows), prior="last", images="frontal")
    assert list(by_id(catalogue)) == ["patient00001_study1"]
    assert dict(catalogue.left_out) == {"without a frontal image": 1}


@pytest.mark.parametrize(
    ("sections", "reports", "rule"),
    [
        ("findings", {"patient00001_study2": "Findings of 1, 2."}, "without a findings section"),
        ("impression", {"patient00001_study1": "Impression of 1, 1."}, None),
        ("both", {"patient00001_study2": "Findings of 1, 2. Impression of 1, 2."}, None),
    ],
)
def test_a_section_is_chosen_and_studies_without_it_are_counted(tmp_path, sections, reports, rule):
    catalogue = found(write(tmp_path), sections=sections)
    studies = by_id(catalogue)
    assert {name: studies[name].report for name in reports} == reports
    assert dict(catalogue.left_out) == ({rule: 1} if rule else {})
    if sections != "findings":
        assert studies["patient00001_study1"].indication == "Fever,\nand more."


@pytest.mark.parametrize(
    ("base", "suffix"),
    [("DICOM/Uncompressed", ".dcm"), ("CheXpert-v1.0-small", ".jpg"), (".", ".png")],
)
def test_images_are_found_in_other_folders_and_formats(tmp_path, base, suffix):
    studies = by_id(found(write(tmp_path, base=base, suffix=suffix)))
    assert all(
        i.path.is_file() and i.path.suffix == suffix for s in studies.values() for i in s.images
    )


def test_frontal_images_alone_and_none(tmp_path):
    studies = by_id(found(write(tmp_path), images="frontal"))
    assert [len(s.images) for s in studies.values()] == [1, 1, 1]
    (tmp_path / "bare").mkdir()
    bare = found(write(tmp_path / "bare", base=None), images="none")
    assert not any(s.images for s in by_id(bare).values()) and len(by_id(bare)) == 3
    refused(SOURCE, tmp_path / "bare", "no folder such as PNG/train/patient00001")


@pytest.mark.parametrize(
    ("sections", "name"),
    [
        ("findings", "findings_fixed.json"),
        ("impression", "impression_fixed.json"),
        ("both", "report_fixed.json"),
    ],
)
def test_labels_are_those_of_the_text_that_is_the_report(tmp_path, sections, name):
    path = "train/patient00001/study2/view1_frontal.jpg"
    values = {"Edema": 1.0, "Fracture": 0.0, "Pneumonia": -1.0, "Cardiomegaly": math.nan}
    labelled(write(tmp_path), name, [(path, values | {"No Finding": 0.0})])
    study = by_id(found(tmp_path, sections=sections))["patient00001_study2"]
    names = ("Edema", "Fracture", "Pneumonia", "Cardiomegaly")
    assert [at(study.labels, n) for n in names] == [1, 2, 3, 0]
    assert at(study.labels, "No Finding") == 0 and not study.expert
    other = found(tmp_path, sections="findings" if sections != "findings" else "both")
    assert all(s.labels is None for s in by_id(other).values()) and "no " in other.notes[0]


def test_readers_labels_come_before_the_labellers(tmp_path):
    path = "valid/patient64541/study1/view1_frontal.jpg"
    labelled(write(tmp_path), "findings_fixed.json", [(path, {"Edema": 1.0})])
    human(tmp_path, "valid.csv", "Path", [(f"CheXpert-v1.0-small/{path}", {"Fracture": "1.0"})])
    study = by_id(found(tmp_path))["patient64541_study1"]
    assert study.expert and study.split == "val" and study.report
    assert [at(study.labels, n) for n in ("Edema", "Fracture", "No Finding")] == [2, 1, 0]


@pytest.mark.parametrize(("base", "suffix"), [("PNG/PNG", ".png"), ("CheXpert-v1.0", ".jpg")])
def test_the_test_set_has_labels_and_images_without_reports(tmp_path, base, suffix):
    write(tmp_path)
    human(
        tmp_path,
        "groundtruth.csv",
        "Study",
        [("CheXpert-v1.0/test/patient64741/study1", {"Edema": "1"})],
    )
    assert found(tmp_path).left_out["without an image"] == 1
    folder = tmp_path / base / "test/patient64741/study1"
    folder.mkdir(parents=True)
    for name in ("view1_frontal", "view2_lateral"):
        (folder / f"{name}{suffix}").write_bytes(b"x")
    (study,) = found(tmp_path).studies["test"]
    assert study.report is None and study.expert and at(study.labels, "Edema") == 1
    assert [image.view for image in study.images] == ["frontal", "lateral"]


def test_annotation_json_decides_the_split(tmp_path):
    write(tmp_path)
    human(tmp_path, "groundtruth.csv", "Study", [("CheXpert-v1.0/test/patient64741/study1", {})])
    entry = {
        "id": "a",
        "report": "R.",
        "image_path": ["PNG/train/patient00002/study1/view1_frontal.png"],
    }
    valid = entry | {"image_path": ["valid/patient64541/study1/view1_frontal.png"]}
    annotate(tmp_path, train=[valid], test=[entry])
    catalogue = found(tmp_path)
    assert {s.id: s.split for s in by_id(catalogue).values()} == {
        "patient64541_study1": "train",
        "patient00002_study1": "test",
    }
    assert dict(catalogue.left_out) == {"not in annotation.json": 2}
    absent = entry | {"image_path": ["train/patient00009/study1/view1_frontal.png"]}
    annotate(tmp_path, train=[entry], val=[absent])
    rule = "of annotation.json that have no report here"
    assert found(tmp_path).left_out_of[rule] == {"val": 1}
    annotate(tmp_path, train=[entry], test=[entry])
    refused(SOURCE, tmp_path, "patient00002/study1 is in train and test")
    annotate(tmp_path, train=[{"id": "a"}])
    refused(SOURCE, tmp_path, "an entry of train names no patient and study")
    (tmp_path / "annotation.json").write_text("[]")
    refused(SOURCE, tmp_path, "no list 'train'")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"path_to_image": "../etc/passwd"}, "wanted train/patientN"),
        ({"frontal_lateral": "Oblique"}, "wanted Frontal or Lateral"),
        ({"split": "test", "path_to_image": ROWS[3]["path_to_image"]}, "wanted train or valid"),
        ({"patient_report_date_order": "soon"}, "no number as patient_report_date_order"),
        ({"patient_report_date_order": "nan"}, "no number as patient_report_date_order"),
        ({"path_to_image": ROWS[0]["path_to_image"]}, "repeats the image"),
    ],
)
def test_a_damaged_row_is_broken_and_the_others_are_read(tmp_path, change, why):
    write(tmp_path)
    catalogue = found(write(tmp_path, [*ROWS[:3], ROWS[3] | change], base=None))
    broken(catalogue, f"{TABLE}: row 5", why)


@pytest.mark.parametrize(
    "change",
    [
        {"split": "valid", "path_to_image": ROWS[1]["path_to_image"]},
        {"path_to_image": ROWS[1]["path_to_image"].replace("train", "valid")},
        {"patient_report_date_order": "3"},
    ],
)
def test_a_study_of_rows_at_odds_is_broken_and_the_others_are_read(tmp_path, change):
    write(tmp_path)
    catalogue = found(write(tmp_path, [ROWS[0], ROWS[1] | change, *ROWS[3:]], base=None))
    broken(catalogue, f"{TABLE}: row 2 (patient00001/study2)", f"in {TABLE}: row 3, not as before")
    assert set(by_id(catalogue)) == {"patient00002_study1", "patient64541_study1"}


def test_an_image_that_is_missing_or_empty_breaks_its_study(tmp_path):
    image = write(tmp_path) / "PNG/PNG/train/patient00002/study1/view1_frontal.png"
    image.write_bytes(b"")
    broken(found(tmp_path), f"{TABLE}: row 5 (patient00002/study1)", f"'{image}', an empty file")
    image.unlink()
    broken(found(tmp_path), f"{TABLE}: row 5", f"'{image}', not found")


def test_a_damaged_table_is_refused(tmp_path):
    refused(SOURCE, tmp_path, "no file df_chexpert_plus_*.csv")
    text = (write(tmp_path) / TABLE).read_bytes()
    table = tmp_path / TABLE
    for damaged, part in (
        (text.replace(b"frontal_lateral", b"view"), "no column 'frontal_lateral'"),
        (text[: text.index(b"\n") + 1], "no rows beneath the header"),
        (b"", "no column 'path_to_image'; it has nothing"),
        (text.replace(b"Cough", b"o" * (2**24 + 1)), "field larger than field limit"),
    ):
        table.write_bytes(damaged)
        refused(SOURCE, tmp_path, str(table), part)
    table.write_bytes(text + b"one,cell\r\n")
    broken(found(tmp_path), f"{TABLE}: row 7", "has 2 cells; wanted 21")


def test_damaged_labels_are_told(tmp_path):
    path = "train/patient00001/study2/view1_frontal.jpg"
    labelled(write(tmp_path), "findings_fixed.json", [(path, {"Edema": 2.0})])
    file = tmp_path / "chexbert_labels/findings_fixed.json"
    broken(found(tmp_path), "findings_fixed.json: line 1", "has 2.0 for Edema")
    labelled(tmp_path, "findings_fixed.json", [("view1.jpg", {})])
    broken(found(tmp_path), "line 1", "names no patient and study")
    for text, part in (('{"path_to_image":', "not JSON"), ("[]", "wanted an object a line")):
        file.write_text(text + "\n")
        refused(SOURCE, tmp_path, f"{file}: line 1", part)
    file.write_bytes(b'{"path_to_image": "\xff"}\n')
    refused(SOURCE, tmp_path, "not UTF-8")
    file.unlink()
    name = "CheXpert-v1.0/valid/patient64541/study1"
    human(
        tmp_path,
        "valid.csv",
        "Path",
        [(f"{name}/view1_frontal.jpg", {}), (f"{name}/view2_frontal.jpg", {"Edema": "1"})],
    )
    broken(found(tmp_path), "valid.csv: row 3", "other labels than the row before")
    assert "patient64541_study1" not in by_id(found(tmp_path))
    (tmp_path / "valid.csv").rename(tmp_path / "groundtruth.csv")
    assert not found(tmp_path).left_out["without an image"]
