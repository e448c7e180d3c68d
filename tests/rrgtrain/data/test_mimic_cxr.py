"""MIMIC-CXR as PhysioNet gives it: what is read from sound trees, and what is told of damaged."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from pathlib import Path

import pytest

from rrgclinical.labels import OBSERVATIONS
from rrgtrain.data import Catalogue
from rrgtrain.errors import UserError
from tests.rrgtrain.data import mimic_tree as tree
from tests.rrgtrain.data.common import catalogue_of

FIRST = "50414267"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Reports are remembered in the test's own directory."""
    path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    return path


def load(root, **wanted) -> Catalogue:
    return catalogue_of("mimic_cxr", root, **wanted)


def every(catalogue):
    return {study.id: study for of in catalogue.studies.values() for study in of}


def refused(root, *parts, **wanted):
    with pytest.raises(UserError) as caught:
        load(root, **wanted)
    line = str(caught.value)
    assert "\n" not in line
    for part in parts:
        assert part in line


def broken(root, name, *parts, **wanted):
    catalogue = load(root, **wanted)
    (only,) = catalogue.broken
    assert name in only.where and name not in every(catalogue)
    for part in parts:
        assert part in only.why
    return catalogue


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
    assert all(image.path.is_file() for of in every(catalogue).values() for image in of.images)
    assert study.labels is None and not study.expert
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
    assert every(catalogue)[FIRST].report == report


def test_a_report_without_the_section_is_left_out_and_counted(tmp_path):
    tree.write_mimic(tmp_path)
    path = tree.folder(tmp_path / "files", "10000764", "57375967").with_suffix(".txt")
    path.write_text(" FINAL REPORT\n COMPARISON: ___.\n\n Clear.\n\n IMPRESSION: Normal.\n")
    catalogue = load(tmp_path)
    assert dict(catalogue.left_out) == {"without a findings section": 1}
    assert "57375967" not in every(catalogue) and not catalogue.broken
    assert every(load(tmp_path, sections="both"))["57375967"].report == "Clear. Normal."
    assert every(load(tmp_path, sections="impression"))["57375967"].report == "Normal."


def test_views_are_called_by_their_position(tmp_path):
    views = ("PA", "AP", "LATERAL", "LL", "LAO", "XTABLE LATERAL", "SWIMMERS", "AP LLD", "")
    studies = [("10000032", FIRST, "train", "21800506", "1", views)]
    tree.write_lists(tmp_path, studies)
    tree.write_reports(tmp_path / "files", studies)
    tree.write_images(tmp_path / "files", studies=studies)
    (study,) = every(load(tmp_path)).values()
    seen = [image.view for image in study.images]
    assert seen == ["frontal", "frontal", "lateral", "lateral", "", "", "", "", ""]
    (study,) = every(load(tmp_path, images="frontal")).values()
    assert [image.view for image in study.images] == ["frontal"] * 2
    lateral = [("10000032", FIRST, "train", "21800506", "1", ("LL",))]
    tree.write_lists(tmp_path, lateral)
    catalogue = load(tmp_path, images="frontal")
    assert dict(catalogue.left_out) == {"without a frontal image": 1} and not every(catalogue)


def test_the_prior_is_the_latest_study_before(tmp_path):
    """Of 26 June the study of 9:41 is before that of 16:55, whatever their ids."""
    studies = every(load(tree.write_mimic(tmp_path), prior="last"))
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
    assert not any(i.prior for s in every(load(tmp_path)).values() for i in s.images)


def test_of_priors_at_one_time_the_greatest_id_is_taken(tmp_path):
    at = ("21800506", "80000.0", ("AP",))
    studies = [
        ("10000032", "50000001", "train", *at),
        ("10000032", "50000003", "train", *at),
        ("10000032", "50000002", "train", "21800507", "0.5", ("AP",)),
    ]
    tree.write_lists(tmp_path, studies)
    tree.write_reports(tmp_path / "files", studies)
    tree.write_images(tmp_path / "files", studies=studies)
    read = every(load(tmp_path, prior="last", images="frontal"))
    assert [i.path.parent.name for i in read["50000002"].images] == ["s50000002", "s50000003"]
    assert [len(read[n].images) for n in ("50000001", "50000003")] == [1, 1]


def test_a_prior_that_nobody_has_is_noted(tmp_path):
    tree.write_mimic(tmp_path)
    assert not load(tmp_path, prior="last").notes[1:]
    (*_, note) = load(tmp_path, prior="last", images="none").notes
    assert "data.prior=last adds nothing" in note
    refused(tmp_path, "prior='first' is unknown", "none, last", prior="first")


def test_reports_apart_are_refused_by_other_layouts(tmp_path):
    with pytest.raises(UserError, match=r"data.reports=.*, r2gen_mimic does not read it"):
        catalogue_of("r2gen_mimic", tmp_path, reports=str(tmp_path))


def test_labels_become_class_ids_and_the_radiologists_win(tmp_path):
    tree.write_mimic(tmp_path)
    machine = {"Edema": "1.0", "Pneumonia": "0.0", "Lung Opacity": "-1.0"}
    tree.write_labels(tmp_path, {FIRST: machine, "54076811": machine})
    tree.write_labels(tmp_path, {"54076811": {"Lung Opacity": "1", "Edema": "-1"}}, human=True)
    catalogue = load(tmp_path)
    studies = every(catalogue)

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
    assert len(every(load(tmp_path))) == 5


@pytest.mark.parametrize("reports", ["mimic-cxr/2.1.0/files", "mimic-cxr-reports/files"])
def test_two_projects_lie_side_by_side(tmp_path, reports):
    tree.write_lists(tmp_path / "mimic-cxr-jpg/2.1.0")
    tree.write_images(tmp_path / "mimic-cxr-jpg/2.1.0/files")
    tree.write_reports(tmp_path / reports)
    assert len(every(load(tmp_path))) == 5


@pytest.mark.parametrize("named", ["files", ".", "..", "../.."])
def test_the_reports_may_be_elsewhere(tmp_path, named):
    jpg, reports = tmp_path / "jpg", tmp_path / "elsewhere/mimic-cxr/2.1.0"
    tree.write_lists(jpg)
    tree.write_images(jpg / "files")
    tree.write_reports(reports / "files")
    refused(jpg, "no reports", "mimic-cxr-reports.zip", "data.reports")
    assert len(every(load(jpg, reports=str(reports / named)))) == 5
    refused(jpg, "data.reports", "no directory", reports=str(tmp_path / "nowhere"))


def test_dicom_files_are_taken_where_there_are_no_jpegs(tmp_path):
    tree.write_lists(tmp_path)
    tree.write_reports(tmp_path / "files")
    tree.write_images(tmp_path / "files", ".dcm")
    suffixes = {i.path.suffix for s in every(load(tmp_path)).values() for i in s.images}
    assert suffixes == {".dcm"}


def test_reports_alone_need_neither_images_nor_metadata(tmp_path):
    tree.write_lists(tmp_path)
    tree.write_reports(tmp_path / "files")
    refused(tmp_path, "no images", "data.images=none")
    (tmp_path / "mimic-cxr-2.0.0-metadata.csv").unlink()
    studies = every(load(tmp_path, images="none"))
    assert len(studies) == 5 and not any(s.images for s in studies.values())


def test_of_a_partial_download_the_rest_is_left_out_and_counted(tmp_path):
    tree.write_mimic(tmp_path)
    shutil.rmtree(tmp_path / "files/p11")
    catalogue = load(tmp_path)
    assert dict(catalogue.left_out) == {"of patients whose folder is not there": 1}
    assert len(every(catalogue)) == 4 and not catalogue.broken


@pytest.mark.parametrize("kind", ["split", "metadata"])
def test_a_missing_list_is_told_with_the_directory_wanted(tmp_path, kind):
    tree.write_mimic(tmp_path)
    (tmp_path / f"mimic-cxr-2.0.0-{kind}.csv").unlink()
    refused(tmp_path, f"no mimic-cxr-2.0.0-{kind}.csv", "physionet.org/files/mimic-cxr-jpg/2.1.0")


def test_the_folder_of_files_is_told_from_the_one_above(tmp_path):
    tree.write_mimic(tmp_path)
    refused(tmp_path / "files", "it is the directory above this one")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def metadata(root: Path) -> Path:
    return tree.write_mimic(root) / "mimic-cxr-2.0.0-metadata.csv"


def test_a_study_of_one_list_alone_is_broken(tmp_path):
    path = metadata(tmp_path)
    text = path.read_text().split("\n")
    path.write_text("\n".join(row for row in text if "57375967" not in row))
    broken(tmp_path, "57375967", "no image in mimic-cxr-2.0.0-metadata.csv")
    path.write_text("\n".join(text))
    split = tmp_path / "mimic-cxr-2.0.0-split.csv"
    split.write_text("\n".join(r for r in split.read_text().split("\n") if "57375967" not in r))
    broken(tmp_path, "57375967", "not in mimic-cxr-2.0.0-split.csv")


def test_an_image_in_two_rows_breaks_its_study(tmp_path):
    path = metadata(tmp_path)
    edit(path, tree.image_name(FIRST, 1), tree.image_name(FIRST, 0))
    broken(tmp_path, FIRST, "again in mimic-cxr-2.0.0-metadata.csv: row 3")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("21800626,165500.312", "2180-06-26,1"),
        ("21800626,165500.312", "21801326,1"),
        ("21800626,165500.312", ",1"),
        ("165500.312", "noon"),
    ],
)
def test_a_date_that_is_none_breaks_only_where_dates_are_read(tmp_path, old, new):
    edit(metadata(tmp_path), old, new)
    broken(tmp_path, "53189527", "StudyDate", "wanted YYYYMMDD", prior="last")
    assert not load(tmp_path).broken


def test_an_unknown_split_breaks_the_study(tmp_path):
    tree.write_mimic(tmp_path)
    edit(tmp_path / "mimic-cxr-2.0.0-split.csv", "validate", "valid")
    broken(tmp_path, "57375967", "'valid'", "validate")


def test_a_row_that_breaks_off_is_told_by_number(tmp_path):
    path = metadata(tmp_path)
    with path.open("a") as file:
        file.write("123,456\n")
    (only,) = load(tmp_path).broken
    assert only.where.endswith("metadata.csv: row 11") and "2 cells; wanted 12" in only.why


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        ("FINDINGS: Sj\xf6gren".encode("latin-1"), "byte 0xf6"),
        (None, "No such file"),
    ],
)
def test_a_broken_report_is_named(tmp_path, content, why):
    tree.write_mimic(tmp_path)
    path = tree.folder(tmp_path / "files", "10000032", FIRST).with_suffix(".txt")
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    catalogue = broken(tmp_path, FIRST, str(path), why)
    assert len(every(catalogue)) == 4


@pytest.mark.parametrize("empty", [False, True])
def test_a_missing_image_is_named_as_a_prior_too(tmp_path, empty):
    tree.write_mimic(tmp_path)
    path = tree.folder(tmp_path / "files", "10000032", FIRST) / f"{tree.image_name(FIRST, 1)}.jpg"
    path.unlink()
    if empty:
        path.touch()
    broken(tmp_path, FIRST, str(path), "empty" if empty else "not found")
    catalogue = load(tmp_path, prior="last")
    assert [b.where for b in catalogue.broken] == [f"study {FIRST}", "study 53911762"]


def test_a_label_that_is_none_is_named(tmp_path):
    tree.write_mimic(tmp_path)
    tree.write_labels(tmp_path, {FIRST: {"Edema": "yes"}})
    broken(tmp_path, FIRST, "'yes'", "chexpert.csv.gz: row 2")


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (lambda packed: packed[:-12], "breaks off"),
        (lambda packed: packed[:40], "breaks off"),
        (lambda packed: b"not gzip at all", "no gzip file"),
        (lambda packed: gzip.compress(b"study_id,subject_id\n"), "no column 'split'"),
        (lambda packed: gzip.compress(b""), "no column 'study_id'; it has nothing"),
        (lambda packed: gzip.compress(gzip.decompress(packed) + b"\xe9\n"), "byte 0xe9"),
    ],
)
def test_a_damaged_list_is_one_line(tmp_path, damage, part):
    path = tree.write_mimic(tmp_path, packed=True) / "mimic-cxr-2.0.0-split.csv.gz"
    path.write_bytes(damage(path.read_bytes()))
    refused(tmp_path, path.name, part)


def test_reports_are_remembered_until_they_change(tmp_path, cache):
    tree.write_mimic(tmp_path)
    before = every(load(tmp_path))
    (remembered,) = (cache / "rrgtrain").iterdir()
    assert every(load(tmp_path)) == before and remembered.stat().st_size
    path = tree.folder(tmp_path / "files", "10000032", FIRST).with_suffix(".txt")
    path.write_text("FINDINGS: Changed.\n")
    after = every(load(tmp_path))
    assert after.pop(FIRST).report == "Changed."
    assert before.pop(FIRST) and after == before
    impressions = every(load(tmp_path, sections="impression"))
    assert len(impressions) == 4 and impressions["57375967"].report == "Normal 57375967."


@pytest.mark.slow
def test_25_000_studies_take_seconds_and_little_memory(tmp_path):
    """Two studies a patient and an image each, as large as the reports of MIMIC-CXR."""
    studies = [
        (str(10_000_000 + number // 2 * 700), str(50_000_000 + number), "train", *at, ("AP",))
        for number, at in enumerate([("21800506", "80000"), ("21800507", "1.5")] * 12_500)
    ]
    tree.write_lists(tmp_path, studies, packed=True)
    tree.write_reports(tmp_path / "files", studies)
    for patient, study, *_ in studies:
        place = tree.folder(tmp_path / "files", patient, study)
        place.mkdir()
        (place / f"{tree.image_name(study, 0)}.jpg").write_bytes(b"jpeg")
    before, began = resident(), time.perf_counter()
    catalogue = load(tmp_path, prior="last")
    cold, grown = time.perf_counter() - began, resident() - before
    assert len(catalogue.studies["train"]) == 25_000 and not catalogue.broken
    assert sum(len(s.images) == 2 for s in catalogue.studies["train"]) == 12_500
    assert cold <= 12.0, f"25,000 studies took {cold:.1f} s"
    assert grown <= 200.0, f"memory grew by {grown:.0f} MiB"


def resident() -> float:
    """Resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
