"""A CSV or JSONL file of one's own: columns, splits, labels, and every way a row can be broken."""

from __future__ import annotations

import csv
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rrgclinical.labels import OBSERVATIONS
from rrgdata import Catalogue
from rrgdata.load import open_studies
from rrgdata.sources.tables import read_csv
from rrgtrain.errors import UserError
from tests.rrgdata import common
from tests.rrgdata.common import catalogue_of, studies_under
from tests.rrgtrain.common import recipe


def row(name: str = "a", **changes: Any) -> dict[str, Any]:
    plain = {"id": name, "images": f"{name}.png", "report": f"Report of {name}.", "split": "train"}
    return {**plain, **changes}


def write(root: Path, *rows: dict[str, Any], delimiter: str = ",", images: bool = True) -> Path:
    """A CSV, with an image file for every simple path."""
    names = list(dict.fromkeys(key for one in rows for key in one))
    text = io.StringIO()
    table = csv.DictWriter(text, names, delimiter=delimiter)
    table.writeheader()
    table.writerows(rows)
    path = root / "studies.csv"
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    for one in rows if images else ():
        for name in str(one.get("images", "")).split("|"):
            (root / name.strip(' []"')).write_bytes(b"not decoded here")
    return path


every, refused = partial(common.every, "table"), partial(common.told, "table")


def test_a_table_with_the_canonical_columns(tmp_path) -> None:
    one = row(indication="Cough.", technique="AP.", comparison="None.", view="AP", note="unread")
    path = write(tmp_path, one, row("b", split="Validation"), row("c", split="test"))
    path.write_text(path.read_text() + " ,,,,,,,,\n,,,,,,\n")  # as a spreadsheet leaves below
    studies = studies_under("table", path)
    ids = {split: [s.id for s in of] for split, of in studies.items()}
    assert ids == {"train": ["a"], "val": ["b"], "test": ["c"]}
    first = studies["train"][0]
    assert (first.report, first.indication) == ("Report of a.", "Cough.")
    assert (first.technique, first.comparison) == ("AP.", "None.")
    assert [(i.path, i.view, i.prior) for i in first.images] == [
        (tmp_path / "a.png", "frontal", False)
    ]
    assert studies["val"][0].images[0].view == "", "a view that the table does not say"
    assert every(tmp_path).keys() == {"a", "b", "c"}, "the directory that holds one table"


def test_columns_of_other_names(tmp_path) -> None:
    rows = [{"key": "a", "png": "a.png", "text": "Normal.", "fold": "dev"}]
    path = write(tmp_path, *rows, images=False)
    (tmp_path / "a.png").write_bytes(b"x")
    named = {"id": "key", "images": "png", "report": "text", "split": "fold"}
    assert every(path, columns=named)["a"].split == "val"
    line = refused(path, columns={**named, "report": "txt"})
    assert "no such column; the nearest is 'text'" in line and "key, png, text, fold" in line
    assert "names 'reprt'; did you mean report?" in refused(path, columns={"reprt": "text"})
    line = refused(path, columns={"report": "text"})
    assert "a column 'png', which is not read" in line and "{report: text, images: png}" in line
    line = refused(path, images="none")
    assert "no column of reports or labels; it has key, png, text, fold; name it" in line
    path = write(tmp_path, {"images": "a.png", "messages": "Normal."})
    assert "data.columns={report: messages}" in refused(path), "not a column that is read already"


@pytest.mark.parametrize("cell", ["a.png|b.png", " a.png | b.png ", '["a.png", "b.png"]'])
def test_several_images_in_a_cell(tmp_path, cell) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"x")
    path = write(tmp_path, row(images=cell, view="PA|LATERAL"), images=False)
    images = every(path)["a"].images
    assert [(i.path.name, i.view) for i in images] == [("a.png", "frontal"), ("b.png", "lateral")]
    assert [i.path.name for i in every(path, images="frontal")["a"].images] == ["a.png"]


def test_absolute_paths_and_priors(tmp_path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("now.png", "before.png"):
        (elsewhere / name).write_bytes(b"x")
    one = row(images=str(elsewhere / "now.png"), prior="elsewhere/before.png")
    images = every(write(tmp_path, one, images=False))["a"].images
    assert [(i.path.name, i.prior) for i in images] == [("now.png", False), ("before.png", True)]
    assert all(i.path.is_file() for i in images)


def test_json_lines(tmp_path) -> None:
    path = tmp_path / "studies.jsonl"
    rows = [
        row(id=7, images=["7.png"], labels=[0, 1, 2, 3] + [0] * 10, indication=None),
        row("b", images="b.png", technique="only here"),
    ]
    path.write_text("".join(json.dumps(one) + "\n\n" for one in rows))
    for name in ("7.png", "b.png"):
        (tmp_path / name).write_bytes(b"x")
    studies = every(path)
    assert studies["7"].labels == (0, 1, 2, 3) + (0,) * 10 and studies["7"].indication == ""
    assert studies["b"].technique == "only here" and studies["b"].labels is None
    path.write_text(json.dumps(row()) + "\n[1]\n")
    assert "line 2 is a list; wanted an object" in refused(path)
    path.write_text(json.dumps(row()) + '\n{"id": "b"')
    assert "line 2: not JSON" in refused(path)


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_excel_separates_otherwise(tmp_path, delimiter) -> None:
    path = write(tmp_path, row(report='Line one.\n"Quoted", größer; two.'), delimiter=delimiter)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert every(path)["a"].report == 'Line one. "Quoted", größer; two.'


def test_labels_in_fourteen_columns(tmp_path) -> None:
    blank = dict.fromkeys(OBSERVATIONS, "")
    marked = {**blank, "Edema": "1.0", "Fracture": "0", "Pneumonia": "-1.0"}
    rows = [row("a", **marked, report=""), row("b", **blank), row("c", **blank, report="")]
    path = write(tmp_path, *rows[:2])
    studies = every(path)
    ids = dict(zip(OBSERVATIONS, studies["a"].labels or (), strict=True))
    assert (ids["Edema"], ids["Fracture"], ids["Pneumonia"], ids["No Finding"]) == (1, 2, 3, 0)
    assert studies["a"].report is None, "labels stand alone"
    assert studies["b"].labels is None
    assert "row 4 (c) has an empty report" in refused(write(tmp_path, *rows))
    line = refused(write(tmp_path, row(**{**blank, "Edema": "2"})))
    assert "has '2' for Edema; wanted 1, 0, -1 or nothing" in line


def test_columns_that_are_not_read_are_told(tmp_path) -> None:
    path = write(tmp_path, row(Edema="1", history="Cough."))
    labels, others = (catalogue := catalogue_of("table", path)).notes
    assert "1 of the 14 columns of labels" in labels
    assert "not read: Edema, history; " in others and "'data.columns={indication: NAME}'" in others
    assert catalogue.studies["train"][0].labels is None
    assert "read: Edema; " in catalogue_of("table", path, columns={"prior": "history"}).notes[1]


@pytest.mark.parametrize(
    ("wanted", "report", "rule"),
    [
        ("findings", "Clear.", "without a findings section"),
        ("impression", "Normal.", "without an impression"),
        ("both", "Clear. Normal.", ""),
    ],
)
def test_sections_kept_apart(tmp_path, wanted, report, rule) -> None:
    rows = [row("a", findings="Clear.", impression="Normal.")]
    rows += [row("b", findings="", impression="Two."), row("c", findings="Three.", impression="")]
    for one in rows:
        del one["report"]
    catalogue = catalogue_of("table", write(tmp_path, *rows), sections=wanted)
    catalogue.check(tmp_path)
    first = catalogue.studies["train"][0].report or ""
    assert " ".join(first.split()) == report
    assert catalogue.left_out == ({rule: 1} if rule else {})
    both = write(tmp_path, row(findings="Clear."))
    assert "say which is the report" in refused(both)
    assert every(both, columns={"report": "findings"})["a"].report == "Clear."


def test_cells_that_say_nothing_beside_others(tmp_path) -> None:
    one = row(findings="NA", impression="Clear.", indication="nan", comparison="none seen")
    one |= {"view": "NaN", "prior": "null"}
    del one["report"]
    path = write(tmp_path, one)
    assert catalogue_of("table", path).left_out == {"without a findings section": 1}
    study = every(path, sections="both")["a"]
    assert (study.report, study.indication, study.comparison) == ("Clear.", "", "none seen")
    assert [(i.view, i.prior) for i in study.images] == [("", False)]
    with_labels = row(report="NA", labels=json.dumps([1] * 14))
    assert every(write(tmp_path, with_labels))["a"].report is None, "labels stand alone"
    for content in ("id", "patient"):
        assert f"has {content} 'NaN'; wanted a name" in refused(
            write(tmp_path, row() | {"patient": "p", content: "NaN"})
        )


def test_without_a_split_patients_stay_together(tmp_path) -> None:
    rows = [row(f"{p}-{k}", patient=f"p{p}", images=f"{p}") for p in range(60) for k in (1, 2)]
    for one in rows:
        del one["split"]
    catalogue = catalogue_of("table", write(tmp_path, *rows))
    sides = {k: {s.id.split("-")[0] for s in of} for k, of in catalogue.studies.items()}
    assert set(sides) == {"train", "val", "test"} and sum(map(len, sides.values())) == 60
    assert len(sides["train"]) > 36
    every = [s for of in catalogue.studies.values() for s in of]
    assert all(s.patient == f"p{s.id.split('-')[0]}" for s in every)
    assert "a tenth is val and a tenth test, by patient" in catalogue.notes[0]
    again = catalogue_of("table", write(tmp_path, *reversed(rows)))
    assert {k: {s.id for s in of} for k, of in again.studies.items()} == {
        k: {s.id for s in of} for k, of in catalogue.studies.items()
    }, "who goes where depends on the name alone"


@pytest.mark.parametrize(
    ("name", "content"), [("Split", "split"), ("PatientID", "patient"), ("Subject ID", "patient")]
)
def test_a_split_is_not_made_beside_one_of_another_name(tmp_path, name, content) -> None:
    rows = [row(f"s{i}") | {name: "test"} for i in range(3)]
    for one in rows:
        del one["split"]
    path = write(tmp_path, *rows)
    line = refused(path)
    assert f"has a column {name!r}" in line and f"data.columns={{{content}: {name}}}" in line
    assert len(every(path, columns={content: name})) == 3
    # it has been named as something else, or there is a split
    assert len(every(path, columns={"indication": name})) == 3
    assert len(every(write(tmp_path, *(one | {"split": "train"} for one in rows)))) == 3


def test_a_column_named_in_capitals_is_not_left_unread(tmp_path) -> None:
    """Unread, `Impression` would leave its studies out, and `ID` name them row2, row3, ..."""
    one = {"ID": "a", "Images": "a.png", "findings": "Clear.", "Impression": "Normal."}
    path = write(tmp_path, one | {"split": "train", "Patient_ID": "p"}, images=False)
    (tmp_path / "a.png").write_bytes(b"not decoded here")
    line = refused(path)
    assert "has a column 'ID', which is not read under that name; say what it is, quotes" in line
    assert "data.columns={id: ID, images: Images, impression: Impression}', or rename it" in line
    columns = {"id": "ID", "images": "Images", "impression": "Impression"}
    study = every(path, columns=columns, sections="both")["a"]
    assert (study.report, len(study.images)) == ("Clear. Normal.", 1)
    # nothing reads images, or a section beside the report
    path = write(tmp_path, row() | {"View": "AP", "Prior": "", "Findings": "Clear."})
    assert every(path, images="none")["a"].report == "Report of a."


def test_a_patient_in_several_splits_is_told(tmp_path) -> None:
    rows = [row("a", patient="p1"), row("b", patient="p1", split="test")]
    (note,) = catalogue_of("table", write(tmp_path, *rows)).notes
    assert "1 patients have studies in several splits" in note


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"id": " "}, "has id ' '; wanted a name"),
        ({"report": "  "}, "has an empty report, '  '; write one or drop the row"),
        ({"report": " NaN "}, "has an empty report, ' NaN '; write one or drop the row"),
        ({"split": "none"}, "has split 'none'; wanted one of train, val, test"),
        ({"report": "a\0b"}, "has a NUL or no Unicode as report"),
        ({"split": "trane"}, "has split 'trane'; wanted one of train, val, test"),
        ({"images": "gone.png"}, "gone.png', not found; put it there"),
        ({"images": "['b.png', "}, "as images, a list or an object written as text, and no whole"),
        ({"report": "{'findings': 'Clear.'}"}, "as report, a list or an object written as text"),
        ({"report": "array(['Clear.'], dtype=object)"}, "write the text alone"),
        ({"report": "['Clear.' ... 'Normal.']"}, "write the text alone"),
        ({"report": "[['Clear.']]"}, "write the text alone"),
        ({"report": '[["Clear."]]'}, "has a list as report; wanted text"),
        ({"view": "oblique"}, "has view 'oblique'; wanted frontal, PA, AP"),
        ({"view": "['PA', 'fontal']"}, "has view 'fontal'; wanted"),
        ({"view": "PA|PA"}, "has 2 views for 1 images"),
        ({"labels": "[1, 2]"}, "has labels as 2 of them; wanted a list of 14 class ids"),
        ({"labels": "1"}, "has labels as a string; wanted a list of 14 class ids"),
        ({"labels": json.dumps([4] * 14)}, "has label 4 for Enlarged Cardiomediastinum; wanted 0"),
    ],
)
def test_broken_rows(tmp_path, changes, told) -> None:
    path = write(tmp_path, row("good"), row("bad", **changes), images=False)
    for name in ("good.png", "bad.png"):
        (tmp_path / name).write_bytes(b"x")
    line = refused(path)
    assert "studies.csv: row 3" in line and told in line
    assert line.count("studies.csv: row") == line.count("studies.csv") - 1, "named once"
    catalogue = catalogue_of("table", path)
    assert len(catalogue.broken) == 1 and [s.id for s in catalogue.studies["train"]] == ["good"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "no rows"),
        (b"id,report,images,split\n", "no rows"),
        (b"id,report,report\na,b,c\n", "the column 'report' stands twice"),
        (b"id,report,images,split\na,caf\xe9,a.png,train\n", "byte 0xe9 in line 2 is not UTF-8"),
        ("id,report\na,b\n".encode("utf-16"), "byte 0xff in line 1 is not UTF-8"),
        (b'id,report,images,split\na,"open,a.png,train\n', "not CSV after line 1"),
        (b"id,report,images,split\na,b, c,a.png,train\n", "row 2 has 5 cells; wanted 4"),
    ],
)
def test_files_that_are_no_table(tmp_path, content, told) -> None:
    path = tmp_path / "studies.csv"
    path.write_bytes(content)
    (tmp_path / "a.png").write_bytes(b"x")
    assert told in refused(path)


def test_a_directory_without_one_table(tmp_path) -> None:
    assert "holds no .csv, .tsv or .jsonl file" in refused(tmp_path)
    for name in ("a.csv", "b.jsonl"):
        (tmp_path / name).write_text("id\n")
    assert "holds 2 tables (a.csv, b.jsonl); name the file" in refused(tmp_path)
    (tmp_path / "c.xlsx").write_bytes(b"PK")
    assert "wanted a .csv, .tsv or .jsonl file" in refused(tmp_path / "c.xlsx")
    assert "does not exist; wanted the files of the data set (data.root)" in refused(
        tmp_path / "absent"
    )


def test_a_recipe_names_the_columns(tmp_path) -> None:
    path = write(tmp_path, row("a", text="Clear."), row("b", text="x", report=""))
    given = ["data.source=table", f"data.root={path}", "data.columns={report: text}"]
    studies = open_studies(recipe(*given).data, tmp_path)
    assert [s.report for s in studies["train"]] == ["Clear.", "x"]
    with pytest.raises(UserError, match="write a blank behind each colon, as in {id: StudyID}"):
        recipe(*given[:2], "data.columns={report:text}")
    with pytest.warns(UserWarning, match="leaves out 1 broken"):
        kept = open_studies(recipe(*given[:2], "data.skip=true").data, tmp_path)
    assert [s.id for s in kept["train"]] == ["a"]
    assert isinstance(catalogue_of("table", path), Catalogue)


@pytest.mark.parametrize("head", ["sep=;\n", "\ufeffSEP=;\r\n", '"sep=;"\n'])
def test_excels_line_above_the_header_names_the_delimiter(tmp_path, head) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{head}id;report,;split\na;x,y,z;train\n", encoding="utf-8", newline="")
    assert every(path, images="none", columns={"report": "report,"})["a"].report == "x,y,z"
    rows = list(read_csv(path, ("id", "split"), Catalogue()))
    assert rows == [("a.csv: row 2", {"id": "a", "split": "train"})]


def test_whole_floats_of_json_lines_are_ids(tmp_path) -> None:
    """pandas writes a column of numbers with a gap as floats."""
    rows = [row(id=1.0, patient=7.0, images="a.png"), row(id=50414267.0, patient=7, images="a.png")]
    path = tmp_path / "studies.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    (tmp_path / "a.png").write_bytes(b"not decoded here")
    assert list(every(path)) == ["1", "50414267"]
    path.write_text(json.dumps(row(id=1.5, images="a.png")) + "\n")
    assert "has id 1.5; wanted a name or a whole number" in refused(path)


def test_half_a_character_in_a_path_is_named(tmp_path) -> None:
    path = tmp_path / "studies.jsonl"
    path.write_text(json.dumps(row(images="\ud800.png")) + "\n")
    assert r"has '\ud800.png', which is no Unicode, as images" in refused(path)
