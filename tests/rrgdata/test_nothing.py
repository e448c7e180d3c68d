"""A text that says that nothing is there is no report, in every data set, and is counted."""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path

import pytest

from rrgclinical.common.errors import UserError
from rrgclinical.common.nothing import is_nothing
from rrgdata import Catalogue, Study
from rrgdata.sources.folder import read_folder
from tests.rrgdata.common import catalogue_of
from tests.rrgdata.sources.test_joined_text import LOADERS, of_mimic_cxr, of_padchest_gr

MARKED = (
    *("nan", "NaN", "NAN", "NA", "na", "N/A", "n/a", "<NA>", "#N/A", "null", "NULL", "None"),
    *("none", "NONE", "\\N", "-", ".", "--", "—", "...", "NaT", "None.", "N/A.", " NA ", "(none)"),
    *("'NaN'", "missing", "undefined", "nil."),
    *("nan nan", "NA NA", "None None", "N / A", "NaN,", "NA;", "nan | nan", "\\\\N", "#NAME?"),
    *("#VALUE!", "#REF!", "#DIV/0!", "#NULL!", "#NUM!", "Err:508", "___", "?", "*", "|", "/"),
    "_" * 60,
    *("___.", "Not given.", "not available", "XXXX.", "[redacted]", "<PHI>", "[**removed**]", "-1"),
)
# Words of a radiologist, or taken out of what one said: they stay in the context.
DICTATED = ("None.", "N/A.", "nil.", "___", "_" * 60, "___.", "Not given.", "XXXX.", "[redacted]")
DICTATED += ("<PHI>", "[**removed**]")
BLANK = ("", " ", "\u00a0", "\u200b")
TEXTS = ["Normal.", "No.", "Clear lungs.", "None seen.", "Nodule, 3 mm.", "NAD", "#3 rib!"]
TEXTS += ["None, none seen.", "At ___.", "<clear>", "5"]
MARKUP = ["<br>", "<p></p>", "&nbsp;", "<br>&nbsp;<BR />\n", "&lt;br&gt;", "<p>NA</p>", r"\n\n"]
MARKUP += ["_x000D_\n", "<div class='x'>&#160;</div>" * 20, "&lt;NA&gt;", "<!-- no report -->"]
CELLS = (*MARKED, *BLANK, *TEXTS)


def table(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def own_table(root: Path, column: str = "report") -> None:
    table(root / "a.csv", [{"id": f"s{n}", column: text} for n, text in enumerate(CELLS)])


def own_lines(root: Path) -> None:
    rows = [{"id": f"s{n}", "report": text} for n, text in enumerate((*CELLS, None, float("nan")))]
    (root / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.mark.parametrize("write", [own_table, partial(own_table, column="findings"), own_lines])
def test_no_marker_is_a_report(tmp_path, write) -> None:
    write(tmp_path)
    catalogue = catalogue_of("table", tmp_path, images="none")
    kept = [study.report for studies in catalogue.studies.values() for study in studies]
    assert sorted(text.rstrip(".") for text in kept) == sorted(t.rstrip(".") for t in TEXTS)
    gone = len(catalogue.broken) + catalogue.left_out.total()
    assert gone >= len(MARKED) + len(BLANK), "each is broken or left out by a rule"
    (note,) = catalogue.nothing.lines()
    assert note.startswith(f"{len(MARKED) + (write is own_lines)} texts say that nothing is there")
    assert note in catalogue.lines() and "'NA' 2" in note and "the first in" in note


@pytest.mark.parametrize("loader", [*LOADERS, of_mimic_cxr, of_padchest_gr])
def test_every_loader_tells_a_marker_from_a_report(tmp_path, loader) -> None:
    for number, text in enumerate(("#N/A", "___", "(none)", "None seen.")):
        (root := tmp_path / str(number)).mkdir()
        source, place = loader(root, text)
        catalogue = catalogue_of(source, place, images="none")
        reports = {study.report for studies in catalogue.studies.values() for study in studies}
        if text == "None seen.":
            assert reports == {text}
        else:
            assert reports <= {None} and text in catalogue.nothing.lines()[0], text
            assert catalogue.broken or catalogue.left_out


def test_a_loader_of_ones_own_reads_no_marker_either() -> None:
    catalogue = Catalogue()
    catalogue.add(Study("a", "train", "N/A", None, ()), "row 1")
    catalogue.add(Study("b", "train", "null", (1,) * 14, ()), "row 2")
    catalogue.add(Study("c", "train", "Normal.", None, ()), "row 3")
    assert [s.report for s in catalogue.studies["train"]] == [None, "Normal."]
    (broken,) = catalogue.broken
    assert (broken.where, "'N/A'" in broken.why) == ("row 1", True)
    (note,) = catalogue.nothing.lines()
    assert note.endswith("empty: report 'N/A' 1, 'null' 1; the first in row 1")


def test_a_report_that_is_only_markup_is_an_empty_one(tmp_path) -> None:
    assert all(is_nothing(text) for text in MARKUP)
    catalogue = Catalogue()
    for n, text in enumerate(MARKUP):
        catalogue.add(Study(f"s{n}", "train", text, None, ()), f"row {n}")
    assert not catalogue.studies
    assert [broken.where for broken in catalogue.broken] == [f"row {n}" for n in range(len(MARKUP))]
    assert all("has an empty report" in broken.why for broken in catalogue.broken)
    (note,) = catalogue.nothing.lines()
    assert note.startswith(f"{len(MARKUP)} texts say that nothing is there")
    table(tmp_path / "a.csv", [{"id": f"s{n}", "report": text} for n, text in enumerate(MARKUP)])
    assert len(catalogue_of("table", tmp_path, images="none").broken) == len(MARKUP)


def test_a_broken_character_is_not_nothing() -> None:
    """Read as empty, it would hide a fault of the file that the loaders tell."""
    assert not any(is_nothing(text) for text in ("\ud800", "\0", "?\udfff"))


def test_of_the_context_a_dictated_none_stays(tmp_path) -> None:
    """ "Comparison: None." tells the policy that there is no earlier study."""
    rows = [
        {"id": f"s{n}", "report": "Clear.", "indication": text, "comparison": "None."}
        for n, text in enumerate(CELLS)
    ]
    table(tmp_path / "a.csv", rows)
    catalogue = catalogue_of("table", tmp_path, images="none")
    studies = [study for of in catalogue.studies.values() for study in of]
    assert {study.comparison for study in studies} == {"None."}
    assert {study.indication for study in studies} == {"", *DICTATED, *TEXTS}


def test_a_name_that_is_not_utf_8_is_told_before_anything_is_written(tmp_path) -> None:
    (tmp_path / "bad\udcff.png").write_bytes(b"")
    with pytest.raises(UserError, match="its name is not UTF-8, as its report"):
        read_folder(tmp_path)
