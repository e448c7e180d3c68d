"""Every loader joins the lines of a report alike, and labels do not change by it."""

from __future__ import annotations

import numpy as np
import pytest

from rrgclinical import build_labeller
from rrgclinical.rules import join_lines
from tests.rrgdata.common import studies_under
from tests.rrgdata.sources import (
    test_chexpert_plus,
    test_iu_xray,
    test_open_i,
    test_own_table,
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
