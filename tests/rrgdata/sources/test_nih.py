"""NIH ChestX-ray14's own files: labels mapped, splits by patient, rows without an image told."""

from __future__ import annotations

from functools import partial

import pytest
from PIL import Image

from rrgclinical.labels import OBSERVATIONS
from tests.rrgdata import common
from tests.rrgdata.common import catalogue_of, studies_under, table

HEADER = "Image Index,Finding Labels,Patient ID,View Position\n"


def write(root, *rows, images=True, folder=".", name="labels.csv"):
    (root / name).write_text(HEADER + "".join(f"{row}\n" for row in rows))
    if images:
        (root / folder).mkdir(parents=True, exist_ok=True)
        for row in rows:
            Image.new("L", (2, 2)).save(root / folder / row.split(",")[0])
    return root


every, refused = partial(common.every, "nih"), partial(common.told, "nih")


@pytest.mark.parametrize(
    ("cell", "positive"),
    [
        ("No Finding", {"No Finding"}),
        ("Effusion", {"Pleural Effusion"}),
        ("Infiltration|Mass", {"Lung Opacity", "Lung Lesion"}),
        ("Nodule", {"Lung Lesion"}),
        ("Pleural_Thickening", {"Pleural Other"}),
        ("Emphysema|Fibrosis|Hernia", set()),
        ("Cardiomegaly|Edema", {"Cardiomegaly", "Edema"}),
    ],
)
def test_labels_map_to_chexpert(tmp_path, cell, positive):
    write(tmp_path, f"1.png,{cell},1,PA")
    study = every(tmp_path)["1"]
    assert {n for n, v in zip(OBSERVATIONS, study.labels, strict=True) if v} == positive
    assert set(study.labels) <= {0, 1} and study.report is None
    assert [(i.view, i.prior) for i in study.images] == [("frontal", False)]


@pytest.mark.parametrize("folder", ["images", "images_001", "images_001/images", "images/images"])
def test_images_are_found_where_the_archives_unpack(tmp_path, folder):
    write(tmp_path, "1.png,Mass,1,AP", folder=folder, name="Data_Entry_2017_v2020.csv")
    assert every(tmp_path)["1"].images[0].path == tmp_path / folder / "1.png"


def test_absent_images_are_left_out_with_a_word(tmp_path):
    write(tmp_path, "1.png,Mass,1,PA", "2.png,Mass,2,PA")
    (tmp_path / "2.png").unlink()
    (note,) = catalogue_of("nih", tmp_path).lines()
    assert "1 of 2 images" in note and "first '2.png'" in note
    assert set(every(tmp_path)) == {"1"}
    assert set(every(tmp_path, images="none")) == {"1", "2"}
    (tmp_path / "1.png").unlink()
    refused(tmp_path, "none of the 2 images", "1.png")


def test_official_split(tmp_path):
    write(tmp_path, *(f"{i}.png,Mass,{i},PA" for i in range(40)))
    (tmp_path / "train_val_list.txt").write_text("\n".join(f"{i}.png" for i in range(30)))
    refused(tmp_path, "train_val_list.txt alone")
    (tmp_path / "test_list.txt").write_text("\n".join(f"{i}.png" for i in range(30, 40)))
    studies = studies_under("nih", tmp_path)
    assert {s.id for s in studies["test"]} == {str(i) for i in range(30, 40)}
    assert 1 <= len(studies["val"]) <= 8 and len(studies["train"]) + len(studies["val"]) == 30
    (tmp_path / "test_list.txt").write_text("30.png")
    refused(tmp_path, "neither")


def test_patients_never_straddle_splits(tmp_path):
    write(tmp_path, *(f"{p}_{i}.png,Mass,{p},PA" for p in range(60) for i in range(3)))
    studies = studies_under("nih", tmp_path)
    patients = [{s.id.split("_")[0] for s in studies[k]} for k in ("train", "val", "test")]
    assert all(patients) and sum(map(len, patients)) == 60
    assert len(patients[0]) > 30
    assert patients[0] == {s.patient for s in studies["train"]}


@pytest.mark.parametrize(("row", "parts"), table("bad rows of NIH"))
def test_bad_rows(tmp_path, row, parts):
    write(tmp_path, row, images=False)
    refused(tmp_path, *parts)


def test_broken_tables(tmp_path):
    refused(tmp_path, "no file Data_Entry_2017*.csv")
    file = tmp_path / "labels.csv"
    file.write_text(HEADER)
    refused(tmp_path, "no rows")
    file.write_text("Image,Labels\n1.png,Mass\n")
    refused(tmp_path, "no column 'Image Index'", "it has Image, Labels")
