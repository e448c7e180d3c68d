"""ReXGradient-160K's own files: views as they are told, sections, damage."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.rrgdata.common import broken, by_id, catalogue_of, refused, table

SOURCE = "rexgradient"
found = partial(catalogue_of, SOURCE)


def entry(patient, views, **sections):
    paths = [
        f"../deid_png/{patient}/A/studies/S/series/{n}/instances/{n}.png" for n in range(len(views))
    ]
    report = {"Findings": f"Findings of {patient}.", "Impression": f"Impression of {patient}."}
    return (
        {
            "PatientID": patient,
            "StudyInstanceUid": "S",
            "ManufacturerModelName": ["X"],
            "ImagePath": paths,
            "ImageViewPosition": views,
            "Indication": "Cough.",
            "Comparison": "None",
        }
        | report
        | sections
    )


TRAIN = {
    "pP1_aA_sS": entry("P1", ["PA", "LATERAL"]),
    "pP2_aA_sS": entry("P2", ["UNKNOWN"], Findings=None),
}
VALID = {"pP3_aA_sS": entry("P3", ["ANTERO_POSTERIOR", "LL", "DECUBITUS"])}


def write(root, train=TRAIN, valid=VALID, folder="metadata"):
    (root / folder).mkdir(exist_ok=True)
    for name, studies in (("train", train), ("valid", valid)):
        (root / folder / f"{name}_metadata_view_position.json").write_text(json.dumps(studies))
        for study in studies.values():
            for path in study["ImagePath"] if isinstance(study["ImagePath"], list) else []:
                if path.startswith("../deid_png/P"):
                    image = root / path.removeprefix("../")
                    image.parent.mkdir(parents=True, exist_ok=True)
                    image.write_bytes(b"x")
    return root


@pytest.mark.parametrize("folder", ["metadata", "."])
def test_studies_with_their_views(tmp_path, folder):
    catalogue = found(write(tmp_path, folder=folder))
    studies = by_id(catalogue)
    assert {s.id: (s.split, s.report) for s in studies.values()} == {
        "pP1_aA_sS": ("train", "Findings of P1."),
        "pP3_aA_sS": ("val", "Findings of P3."),
    }
    views = {s.id: [i.view for i in s.images] for s in studies.values()}
    assert views == {"pP1_aA_sS": ["frontal", "lateral"], "pP3_aA_sS": ["frontal", "lateral", ""]}
    assert all(i.path.is_file() and not i.prior for s in studies.values() for i in s.images)
    first = studies["pP1_aA_sS"]
    assert (first.indication, first.comparison, first.labels) == ("Cough.", "", None)
    assert {s.patient for s in studies.values()} == {"P1", "P3"}
    assert dict(catalogue.left_out) == {"without a findings section": 1}
    assert ["test" in note for note in catalogue.notes] == [True]


def test_sections_and_views_that_are_wanted(tmp_path):
    write(tmp_path)
    refused(SOURCE, tmp_path, "data.prior=last is for data.source=chexpert_plus", prior="last")
    both = by_id(found(tmp_path, sections="both"))
    assert both["pP1_aA_sS"].report == "Findings of P1. Impression of P1."
    assert both["pP2_aA_sS"].report == "Impression of P2."
    frontal = found(tmp_path, sections="impression", images="frontal")
    assert {s.id: len(s.images) for s in by_id(frontal).values()} == {
        "pP1_aA_sS": 1,
        "pP3_aA_sS": 1,
    }
    assert dict(frontal.left_out) == {"without a frontal image": 1}


def test_patients_without_images_are_counted_and_none_at_all_is_refused(tmp_path):
    write(tmp_path)
    (tmp_path / "deid_png/P3").rename(tmp_path / "deid_png/elsewhere")
    catalogue = found(tmp_path)
    assert catalogue.left_out["of patients without a folder in deid_png"] == 1
    assert list(by_id(catalogue)) == ["pP1_aA_sS"]
    for patient in ("P1", "P2"):
        (tmp_path / "deid_png" / patient).rename(tmp_path / f"deid_png/no_{patient}")
    refused(SOURCE, tmp_path, "a folder for none of the patients", "data.images=none")
    (tmp_path / "deid_png").rename(tmp_path / "png")
    refused(SOURCE, tmp_path, "no folder deid_png", "tar --zstd -x", "data.images=none")
    assert len(by_id(found(tmp_path, images="none"))) == 2


@pytest.mark.parametrize(("change", "why"), table("damaged studies of ReXGradient"))
def test_a_damaged_study_is_broken_and_the_others_are_read(tmp_path, change, why):
    damaged = TRAIN | {"pP1_aA_sS": TRAIN["pP1_aA_sS"] | change}
    write(tmp_path)
    broken(found(write(tmp_path, damaged)), "json: pP1_aA_sS", why)


def test_damaged_metadata_is_refused(tmp_path):
    refused(SOURCE, tmp_path, "metadata has none of train_metadata_view_position.json")
    write(tmp_path)
    file = tmp_path / "metadata/train_metadata_view_position.json"
    text = file.read_bytes()
    for damaged, part in (
        (b"{}", "wanted an object of studies"),
        (text.replace(b"pP2", b"pP1"), "stands twice"),
    ):
        file.write_bytes(damaged)
        refused(SOURCE, tmp_path, str(file), part)
