"""Every loader joins the lines of a report, and passes hidden files over, alike."""

from __future__ import annotations

import numpy as np
import pytest

from rrgclinical import build_labeller
from rrgclinical.rules import join_lines
from tests.rrgdata.common import catalogue_of, studies_under
from tests.rrgdata.mimic_tree import write_mimic
from tests.rrgdata.sources import (
    test_chexpert_plus,
    test_iu_xray,
    test_nih,
    test_open_i,
    test_own_table,
    test_padchest_gr,
    test_r2gen_mimic,
    test_rexgradient,
)

TEXTS = {
    "wrapped": "THE HEART IS NOT\nENLARGED. NO PLEURAL\nEFFUSION OR\r\nPNEUMOTHORAX.",
    "bullets": "Heart size normal.\n- No pneumothorax\n-Small effusion",
    "a line each": "NO PNEUMOTHORAX\nSMALL EFFUSION",
    "paragraphs": "Lungs are\nclear\n\nNo effusion",
    "numbers": "1. No edema.\n2. Small\neffusion.",
}


def of_table(root, text):
    return "table", test_own_table.write(root, test_own_table.row(report=text))


def of_chexpert_plus(root, text):
    row = test_chexpert_plus.row(1, 1, "view1_frontal", 1, section_findings=text)
    return "chexpert_plus", test_chexpert_plus.write(root, [row])


def of_rexgradient(root, text):
    entry = test_rexgradient.entry("P1", ["PA"], Findings=text)
    return "rexgradient", test_rexgradient.write(root, {"a": entry}, {"b": entry})


def of_iu_xray(root, text):
    entries = {"train": [test_iu_xray.entry(report=text)], "val": [], "test": []}
    test_iu_xray.write(root, entries)
    return "iu_xray", root


def of_r2gen_mimic(root, text):
    return "r2gen_mimic", test_r2gen_mimic.write(
        root, {"train": [test_r2gen_mimic.entry(report=text)], "val": [], "test": []}
    )


def of_open_i(root, text):
    texts = {n: test_open_i.report(n, names, text) for n, names in test_open_i.IMAGES.items()}
    return "open_i", test_open_i.write(root, texts=texts)


LOADERS = [of_table, of_chexpert_plus, of_rexgradient, of_iu_xray, of_r2gen_mimic, of_open_i]


@pytest.mark.parametrize("loader", LOADERS)
def test_a_loader_joins_the_lines(loader, tmp_path):
    label = build_labeller("rules").label
    for name, text in TEXTS.items():
        root = tmp_path / name
        root.mkdir()
        source, place = loader(root, text)
        splits = studies_under(source, place, images="none").values()
        reports = {study.report for studies in splits for study in studies}
        assert reports == {join_lines(text)}, name
        np.testing.assert_array_equal(label([join_lines(text)]), label([text]))


def chexpert_plus_with_tests(root):
    test_chexpert_plus.write(root)
    study = "test/patient64741/study1"
    test_chexpert_plus.human(root, "groundtruth.csv", "Study", [(f"CheXpert-v1.0/{study}", {})])
    (root / "PNG/PNG" / study).mkdir(parents=True)
    (root / "PNG/PNG" / study / "view1_frontal.png").write_bytes(b"x")


WHOLE = {
    "chexpert_plus": chexpert_plus_with_tests,
    "iu_xray": test_iu_xray.write,
    "mimic_cxr": write_mimic,
    "nih": lambda root: test_nih.write(root, "1.png,Mass,1,PA", folder="images/images"),
    "open_i": test_open_i.write,
    "padchest_gr": test_padchest_gr.write,
    "r2gen_mimic": test_r2gen_mimic.write,
    "rexgradient": test_rexgradient.write,
    "table": lambda root: test_own_table.write(root, test_own_table.row()),
}


@pytest.mark.parametrize("source", WHOLE)
def test_hidden_files_change_nothing(source, tmp_path):
    """An archive of a Mac has one for each file, and a download that broke off leaves some."""
    WHOLE[source](tmp_path)
    before = catalogue_of(source, tmp_path)
    assert any(before.studies.values()) and not before.broken
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        for name in (f"._{path.name}", f".azDownload-1-{path.name}"):
            path.with_name(name).write_bytes(b"\0\5\x16\7\0\2")
    after = catalogue_of(source, tmp_path)
    assert (after.studies, after.lines()) == (before.studies, before.lines())
    assert not after.broken
