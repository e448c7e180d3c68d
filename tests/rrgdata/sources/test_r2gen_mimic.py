"""R2Gen's MIMIC-CXR: every entry is one image of a view that nobody names."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.rrgdata import common
from tests.rrgdata.common import catalogue_of, studies_under

SOURCE = "r2gen_mimic"


def entry(image="02aa804e", **changes):
    return {
        "id": image,
        "study_id": 50414267,
        "subject_id": 10000032,
        "report": "The lungs are\n clear . \n\n No effusion .",
        "image_path": [f"p10/p10000032/s50414267/{image}.jpg"],
        "split": "train",
        **changes,
    }


def write(root, annotation=None, folder="images"):
    annotation = {"train": [entry()]} if annotation is None else annotation
    (root / "annotation.json").write_text(json.dumps(annotation), encoding="utf-8")
    place = root / folder / "p10/p10000032/s50414267"
    place.mkdir(parents=True, exist_ok=True)
    for image in ("02aa804e", "174413ec"):
        (place / f"{image}.jpg").write_bytes(b"jpeg")
    return root


refused = partial(common.refused, SOURCE)


@pytest.mark.parametrize("folder", ["images", "files", "."])
def test_an_entry_is_a_sample_of_one_image_without_a_view(tmp_path, folder):
    (study,) = studies_under(SOURCE, write(tmp_path, folder=folder))["train"]
    (image,) = study.images
    assert (study.id, study.split, study.labels) == ("02aa804e", "train", None)
    assert (image.view, image.prior) == ("", False) and image.path.is_file()
    assert study.report == "The lungs are clear . No effusion ."


def test_images_of_one_study_are_samples_of_their_own(tmp_path):
    annotation = {"train": [entry(), entry("174413ec")], "val": [], "test": []}
    studies = studies_under(SOURCE, write(tmp_path, annotation))
    assert [s.id for s in studies["train"]] == ["02aa804e", "174413ec"]
    assert len({s.report for s in studies["train"]}) == 1
    assert [s.patient for s in studies["train"]] == ["10000032"] * 2


def test_frontal_images_cannot_be_chosen(tmp_path):
    refused(write(tmp_path), "which view", "data.images=all", images="frontal")


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ([], "is a list; wanted an object"),
        (entry(id=None), "has id None"),
        (entry(report=None), "null as report; wanted text"),
        (entry(report=" \n"), "empty report"),
        (entry(report="\ud800"), "not Unicode as report"),
        (entry(image_path=[]), "a list of one path"),
        (entry(image_path=["nowhere.jpg"]), "'nowhere.jpg', not found"),
        (entry(image_path=["../a.jpg"]), "outside"),
        (entry("174413ec"), "repeats the id '174413ec'"),
    ],
)
def test_a_broken_entry_is_named(tmp_path, wrong, part):
    catalogue = catalogue_of(SOURCE, write(tmp_path, {"train": [entry("174413ec"), wrong]}))
    (only,) = catalogue.broken
    assert only.where.startswith("annotation.json: train[1]") and part in only.why
    assert [s.id for s in catalogue.studies["train"]] == ["174413ec"]


def test_a_root_without_annotation_is_told(tmp_path):
    refused(tmp_path, "annotation.json", "R2Gen's MIMIC-CXR layout")
