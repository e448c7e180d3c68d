"""Every loader joins the lines of a report, and passes hidden files over, alike."""

from __future__ import annotations

import json
import subprocess
import sys

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
    test_padchest_gr,
    test_r2gen_mimic,
    test_rexgradient,
)
from tests.rrgdata.sources import test_own_table as own

TEXTS = {
    "wrapped": "THE HEART IS NOT\nENLARGED. NO PLEURAL\nEFFUSION OR\r\nPNEUMOTHORAX.",
    "bullets": "Heart size normal.\n- No pneumothorax\n-Small effusion",
    "a line each": "NO PNEUMOTHORAX\nSMALL EFFUSION",
    "paragraphs": "Lungs are\nclear\n\nNo effusion",
    "numbers": "1. No edema.\n2. Small\neffusion.",
}


def of_table(root, text):
    return "table", own.write(root, own.row(report=text))


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


def of_mimic_cxr(root, text):
    write_mimic(root)
    for path in root.rglob("s*.txt"):
        path.write_text(f"FINDINGS: {text}\n\nIMPRESSION: Normal.")
    return "mimic_cxr", root


def of_padchest_gr(root, text):
    return "padchest_gr", test_padchest_gr.write(root, [test_padchest_gr.entry(1, text)])


@pytest.mark.parametrize("sections", ["findings", "both"])
@pytest.mark.parametrize("loader", [*LOADERS, of_mimic_cxr, of_padchest_gr])
def test_a_loader_counts_what_it_makes_plain(loader, sections, tmp_path):
    source, place = loader(tmp_path, "Lungs are clearNo effusion.")
    for _ in range(2):  # what is remembered of a file counts too
        lines = catalogue_of(source, place, images="none", sections=sections).lines()
        assert any("reports glue statements, as 'clearNo'" in line for line in lines)


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
    "table": lambda root: own.write(root, own.row()),
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


WRITTEN = {
    "list": str,
    "tuple": lambda parts: str(tuple(parts)),
    "array": lambda parts: str(np.array(parts, dtype=object)),
    "wrapped array": lambda parts: np.array2string(np.array(parts), max_line_width=20),
    "JSON": json.dumps,
    "JSON in letters": lambda parts: json.dumps(parts, ensure_ascii=False),
}
"""Cells that pandas writes of a column of lists, tuples or arrays, and what tools make of them."""
PARTS = (
    ["Findings: Clear. Impression: Normal."],
    ["No effusion", "Small pneumothorax"],
    ["The patient's heart isn't large.", 'A "mass", [sic] 3 cm.'],
    ["Größe: 2\u00a0cm\ttall\nand wide.", "C:\\films\\a.png", "A \u2665\u2028b"],
)


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_list_in_a_cell_is_its_texts_and_told(tmp_path, kind):
    plain = [own.row(f"s{n}", report="\n\n".join(parts)) for n, parts in enumerate(PARTS)]
    lists = [own.row(f"s{n}", report=WRITTEN[kind](parts)) for n, parts in enumerate(PARTS)]
    reports = {name: study.report for name, study in own.every(own.write(tmp_path, *plain)).items()}
    catalogue = catalogue_of("table", own.write(tmp_path, *lists))
    assert {study.id: study.report for study in catalogue.studies["train"]} == reports
    (note,) = catalogue.notes
    assert "4 texts are lists, as pandas writes them, and read as paragraphs" in note
    films, views = WRITTEN[kind](["a.png", "b b.png"]), WRITTEN[kind](["PA", "left lateral"])
    path = own.write(tmp_path, own.row(images=films, view=views), images=False)
    for name in ("a.png", "b b.png"):
        (tmp_path / name).write_bytes(b"x")
    (study,) = own.every(path).values()
    assert [(i.path.name, i.view) for i in study.images] == [
        ("a.png", "frontal"),
        ("b b.png", "lateral"),
    ]


def test_a_missing_part_of_a_list_is_no_text_and_no_view(tmp_path):
    one = own.row(report="['Clear.', nan, None, 'NA']", images="a.png|b.png|c.png|d.png")
    one["view"] = "[nan, 'Erect', 'antero-posterior', 'Postero_Anterior']"
    lines = tmp_path / "studies.jsonl"
    other = one | {"report": ["Clear.", None, float("nan")], "view": [None, "NaN", "AP", "PA"]}
    lines.write_text(json.dumps(other) + "\n")
    for (study,) in (own.every(own.write(tmp_path, one)).values(), own.every(lines).values()):
        assert study.report == "Clear."
        assert [image.view for image in study.images] == ["", "", "frontal", "frontal"]


def test_a_text_that_begins_as_a_list_stays(tmp_path):
    for text in ("[redacted] Clear.", "(normal)", "[1] Clear.", "{x} Clear.", '("Stat") Clear.'):
        assert own.every(own.write(tmp_path, own.row(report=text)))["a"].report == text


@pytest.mark.parametrize("digits", [16, 17, 19, 36, 45])
def test_an_id_that_lost_its_digits_is_refused_with_the_cause(tmp_path, digits):
    """pandas, pyarrow and Excel make numbers of them; whole, they are names of any length."""
    whole = ("123456789" * 5)[:digits]
    number = float(whole)
    lines = tmp_path / "studies.jsonl"
    for content in ("id", "patient"):
        assert set(own.every(own.write(tmp_path, own.row() | {content: whole}))) == {
            whole if content == "id" else "a"
        }
        (tmp_path / "studies.csv").unlink()
        lines.write_text(json.dumps(own.row() | {content: number}) + "\n")
        paths = [lines]
        for name, text in ((f"{number}", "a"), (f"{number:.5E}", "b"), (f"{number:g}", "c")):
            (tmp_path / text).mkdir(exist_ok=True)
            paths.append(own.write(tmp_path / text, own.row() | {content: name}))
        for path in paths:
            line = own.refused(path)
            assert f"has {content} " in line and "its digits are lost; write the column as" in line
        lines.unlink()
    for name in ("12e45", "1e5", "5e+0", "1.5e+1", "123.0"):
        assert set(own.every(own.write(tmp_path, own.row(name, images="a.png"))))


# A data set is added by one module: every reader then knows it.
MADE_UP = """
from rrgdata.sources.source import Published, Source
from rrgdata.study import Study


def load_made_up(root, settings, catalogue):
    catalogue.studies["train"] = [Study("one", "train", "Clear lungs.", None, ())]


SOURCE = Source(
    name="made_up",
    load=load_made_up,
    marks=("made_up.bin",),
    reports_apart=True,
    priors=True,
    terms="the made-up terms",
    published=Published({"train": (12_345, None)}, "made-up studies", "https://example.org"),
)
"""

READERS = """
import sys
from pathlib import Path

import rrgdata.sources

rrgdata.sources.__path__.append(sys.argv[1])
from rrgdata import ReadSettings, load_studies
from rrgdata.check import check_data_set
from rrgdata.sources import guess_source
from rrgreport.model_card import Exported, model_card
from rrgtrain.config import load_config
from rrgtrain.schema import Recipe

root = Path(sys.argv[2])
data = load_config(Recipe, None, ["data.source=made_up", "data.prior=last"]).data
assert guess_source(root) == "made_up"
studies = load_studies("made_up", root, ReadSettings(reports=root)).studies
assert [study.id for study in studies["train"]] == ["one"]
check_data_set(root, data, source=None, out=None, images=False)
trained = {"data.source": "made_up"}
print(model_card(Exported("x", "M", "bf16", False, None, None, trained, None, False)))
"""


def test_every_reader_knows_a_source_of_one_module(tmp_path) -> None:
    folder, root = tmp_path / "folder", tmp_path / "root"
    for path, text in ((folder / "made_up.py", MADE_UP), (root / "made_up.bin", "")):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    # a process of its own, since settings are declared once
    command = [sys.executable, "-c", READERS, str(folder), str(root)]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    for words in ("made_up (guessed", "12,345", "https://example.org", "the made-up terms"):
        assert words in done.stdout
