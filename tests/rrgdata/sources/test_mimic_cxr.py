"""MIMIC-CXR as PhysioNet gives it: studies, sections, views, priors, labels, and their places."""

from __future__ import annotations

import shutil

import pytest

from rrgclinical.labels import OBSERVATIONS
from tests.rrgdata import mimic_tree as tree
from tests.rrgdata.common import by_id
from tests.rrgdata.mimic_tree import FIRST, load, refused


@pytest.mark.parametrize("packed", [False, True])
def test_a_study_is_read(tmp_path, packed):
    catalogue = load(tree.write_mimic(tmp_path, packed))
    assert {split: [s.id for s in of] for split, of in catalogue.studies.items()} == {
        "train": [FIRST, "53189527", "53911762"],
        "val": ["57375967"],
        "test": ["54076811"],
    }
    study = catalogue.studies["train"][0]
    assert study.report == f"The lungs of study {FIRST} are clear."
    assert study.indication == f"Cough of study {FIRST}."
    assert (study.technique, study.comparison) == ("Two views.", "___.")
    assert [(i.view, i.prior) for i in study.images] == [("frontal", False), ("lateral", False)]
    assert all(image.path.is_file() for of in by_id(catalogue).values() for image in of.images)
    assert study.labels is None and not study.expert
    assert study.images[0].path.parent.parent.name == f"p{study.patient}"
    assert not catalogue.broken and not catalogue.left_out


@pytest.mark.parametrize(
    ("sections", "report"),
    [
        ("impression", f"Normal {FIRST}."),
        ("both", f"The lungs of study {FIRST} are clear. Normal {FIRST}."),
    ],
)
def test_the_sections_asked_for_are_the_report(tmp_path, sections, report):
    catalogue = load(tree.write_mimic(tmp_path), sections=sections)
    assert by_id(catalogue)[FIRST].report == report


def test_a_report_without_the_section_is_left_out_and_counted(tmp_path):
    tree.write_mimic(tmp_path)
    path = tree.folder(tmp_path / "files", "10000764", "57375967").with_suffix(".txt")
    path.write_text(" FINAL REPORT\n COMPARISON: ___.\n\n Clear.\n\n IMPRESSION: Normal.\n")
    catalogue = load(tmp_path)
    assert dict(catalogue.left_out) == {"without a findings section": 1}
    assert "57375967" not in by_id(catalogue) and not catalogue.broken
    assert by_id(load(tmp_path, sections="both"))["57375967"].report == "Clear. Normal."
    assert by_id(load(tmp_path, sections="impression"))["57375967"].report == "Normal."


def test_views_are_called_by_their_position(tmp_path):
    views = ("PA", "AP", "LATERAL", "LL", "LAO", "XTABLE LATERAL", "SWIMMERS", "AP LLD", "")
    studies = [("10000032", FIRST, "train", "21800506", "1", views)]
    tree.write_mimic(tmp_path, studies=studies)
    (study,) = by_id(load(tmp_path)).values()
    seen = [image.view for image in study.images]
    assert seen == ["frontal", "frontal", "lateral", "lateral", "", "", "", "", ""]
    (study,) = by_id(load(tmp_path, images="frontal")).values()
    assert [image.view for image in study.images] == ["frontal"] * 2
    lateral = [("10000032", FIRST, "train", "21800506", "1", ("LL",))]
    tree.write_lists(tmp_path, lateral)
    catalogue = load(tmp_path, images="frontal")
    assert dict(catalogue.left_out) == {"without a frontal image": 1} and not by_id(catalogue)


def test_the_prior_is_the_latest_study_before(tmp_path):
    """Order the studies of 26 June: that of 9:41 is before that of 16:55, whatever their ids."""
    studies = by_id(load(tree.write_mimic(tmp_path), prior="last"))
    priors = {n: {i.path.parent.name for i in s.images if i.prior} for n, s in studies.items()}
    assert priors == {
        FIRST: set(),
        "53911762": {f"s{FIRST}"},
        "53189527": {"s53911762"},
        "57375967": set(),
        "54076811": set(),
    }
    views = [(i.view, i.prior) for i in studies["53189527"].images]
    assert views == [("frontal", False), ("frontal", True), ("", True)]
    assert not any(i.prior for s in by_id(load(tmp_path)).values() for i in s.images)


def test_of_priors_at_one_time_the_greatest_id_is_taken(tmp_path):
    at = ("21800506", "80000.0", ("AP",))
    studies = [
        ("10000032", "50000001", "train", *at),
        ("10000032", "50000003", "train", *at),
        ("10000032", "50000002", "train", "21800507", "0.5", ("AP",)),
    ]
    tree.write_mimic(tmp_path, studies=studies)
    read = by_id(load(tmp_path, prior="last", images="frontal"))
    assert [i.path.parent.name for i in read["50000002"].images] == ["s50000002", "s50000003"]
    assert [len(read[n].images) for n in ("50000001", "50000003")] == [1, 1]


def test_a_studys_time_is_that_of_its_first_image(tmp_path):
    """The second image of 53911762 is of 18:00, after the study of 16:55 began."""
    tree.write_mimic(tmp_path)
    path = tmp_path / "mimic-cxr-2.0.0-metadata.csv"
    before, row, after = path.read_text().partition(f"{tree.image_name('53911762', 1)},")
    path.write_text(before + row + after.replace("94102.125", "180000", 1))
    priors = [i.path.parent.name for i in by_id(load(tmp_path, prior="last"))["53189527"].images]
    assert priors == ["s53189527", "s53911762", "s53911762"]


def test_labels_become_class_ids_and_the_radiologists_win(tmp_path):
    tree.write_mimic(tmp_path)
    machine = {"Edema": "1.0", "Pneumonia": "0.0", "Lung Opacity": "-1.0"}
    tree.write_labels(tmp_path, {FIRST: machine, "54076811": machine})
    tree.write_labels(tmp_path, {"54076811": {"Lung Opacity": "1", "Edema": "-1"}}, human=True)
    catalogue = load(tmp_path)
    studies = by_id(catalogue)

    def labels(name):
        cells = zip(OBSERVATIONS, studies[name].labels, strict=True)
        return {observation: label for observation, label in cells if label}

    assert labels(FIRST) == {"Edema": 1, "Pneumonia": 2, "Lung Opacity": 3}
    assert labels("54076811") == {"Lung Opacity": 1, "Edema": 3}
    assert [s.id for s in studies.values() if s.expert] == ["54076811"]
    assert studies["57375967"].labels is None
    assert any("3 studies" in note for note in catalogue.notes)


@pytest.mark.parametrize(
    "jpg",
    [
        ".",
        "mimic-cxr-jpg",
        "2.1.0",
        "mimic-cxr-jpg/2.1.0",
        "physionet.org/files/mimic-cxr-jpg/2.1.0",
    ],
)
def test_the_root_may_be_any_directory_above(tmp_path, jpg):
    tree.write_mimic(tmp_path / jpg, packed=True)
    assert len(by_id(load(tmp_path))) == 5


@pytest.mark.parametrize("reports", ["mimic-cxr/2.1.0/files", "mimic-cxr-reports/files"])
def test_two_projects_lie_side_by_side(tmp_path, reports):
    tree.write_lists(tmp_path / "mimic-cxr-jpg/2.1.0")
    tree.write_images(tmp_path / "mimic-cxr-jpg/2.1.0/files")
    tree.write_reports(tmp_path / reports)
    assert len(by_id(load(tmp_path))) == 5


@pytest.mark.parametrize("named", ["files", ".", "..", "../.."])
def test_the_reports_may_be_elsewhere(tmp_path, named):
    jpg, reports = tmp_path / "jpg", tmp_path / "elsewhere/mimic-cxr/2.1.0"
    tree.write_lists(jpg)
    tree.write_images(jpg / "files")
    tree.write_reports(reports / "files")
    refused(jpg, "no reports", "mimic-cxr-reports.zip", "data.reports")
    assert len(by_id(load(jpg, reports=str(reports / named)))) == 5
    refused(jpg, "data.reports", "no directory", reports=str(tmp_path / "nowhere"))


def test_dicom_files_are_taken_where_there_are_no_jpegs(tmp_path):
    tree.write_lists(tmp_path)
    tree.write_reports(tmp_path / "files")
    tree.write_images(tmp_path / "files", ".dcm")
    suffixes = {i.path.suffix for s in by_id(load(tmp_path)).values() for i in s.images}
    assert suffixes == {".dcm"}


def test_reports_alone_need_neither_images_nor_metadata(tmp_path):
    tree.write_lists(tmp_path)
    tree.write_reports(tmp_path / "files")
    refused(tmp_path, "no images", "data.images=none")
    (tmp_path / "mimic-cxr-2.0.0-metadata.csv").unlink()
    studies = by_id(load(tmp_path, images="none"))
    assert len(studies) == 5 and not any(s.images for s in studies.values())


def test_of_a_partial_download_the_rest_is_left_out_and_counted(tmp_path):
    tree.write_mimic(tmp_path)
    shutil.rmtree(tmp_path / "files/p11")
    catalogue = load(tmp_path)
    assert dict(catalogue.left_out) == {"of patients whose folder is not there": 1}
    assert len(by_id(catalogue)) == 4 and not catalogue.broken


def test_reports_are_remembered_until_they_change(tmp_path, cache_home):
    tree.write_mimic(tmp_path)
    before = by_id(load(tmp_path))
    (remembered,) = (cache_home / "rrgtrain").iterdir()
    assert by_id(load(tmp_path)) == before and remembered.stat().st_size
    path = tree.folder(tmp_path / "files", "10000032", FIRST).with_suffix(".txt")
    path.write_text("FINDINGS: Changed.\n")
    after = by_id(load(tmp_path))
    assert after.pop(FIRST).report == "Changed."
    assert before.pop(FIRST) and after == before
    impressions = by_id(load(tmp_path, sections="impression"))
    assert len(impressions) == 4 and impressions["57375967"].report == "Normal 57375967."
