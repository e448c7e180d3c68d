"""Files of reports as they come: columns, ids, labels, and what is refused by name."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rrgclinical.common.errors import UserError
from rrgclinical.labels import OBSERVATIONS
from rrgclinical.scorecard import Columns, pair_reports, read_predictions, read_references
from tests.rrgclinical.cases import table


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def only(path: Path, columns: Columns | None = None) -> tuple[list[str] | None, list[str]]:
    (reports,) = read_predictions(path, columns).values()
    return reports.ids, [text for (text,) in reports.texts]


FILES = {
    "a.csv": 'id,report\n1,"Clear lungs,\nno effusion."\n2,\n',
    "a.tsv": 'id\treport\n1\t"Clear lungs,\nno effusion."\n2\t""\n',
    "a.jsonl": '{"id": 1, "report": "Clear lungs,\\nno effusion."}\n\n'
    '{"id": "2", "report": null}\n',
    "batch.jsonl": "\n".join(
        json.dumps({"custom_id": i, "response": {"status_code": 200, "body": body}, "error": None})
        for i, said in (("1", "Clear lungs,\nno effusion."), ("2", ""))
        for body in [{"choices": [{"message": {"role": "assistant", "content": said}}]}]
    ),
    "a.json": '{"1": "Clear lungs,\\nno effusion.", "2": ""}',
    "list.json": '[{"id": 1, "report": "Clear lungs,\\nno effusion."}, {"id": 2, "report": ""}]',
    "rows.json": '{"1": {"x": 3, "report": "Clear lungs,\\nno effusion."}, "2": {"report": NaN}}',
    "pandas.json": '{"0": {"id": 1, "report": "Clear lungs,\\nno effusion."}, '
    '"1": {"id": 2, "report": ""}}',
    "chexbert.csv": 'id,Report Impression\n1,"Clear lungs,\nno effusion."\n2,\n',
    "gts.json": '{"1": ["Clear lungs,\\nno effusion."], "2": [""]}',
    "coco.json": '{"images": [{"id": 1}], "annotations": [{"id": 7, "image_id": 1, "caption": '
    '"Clear lungs,\\nno effusion."}, {"id": 8, "image_id": 2, "caption": ""}]}',
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_holds_the_same_reports(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, FILES[name])
    assert only(path) == (["1", "2"], ["Clear lungs,\nno effusion.", ""])


def test_lines_of_text_are_reports_and_pair_with_as_many(tmp_path: Path) -> None:
    for text in ("A\n\nC\n", "A\r\n\r\nC"):
        assert only(written(tmp_path / "a.txt", text)) == (["1", "2", "3"], ["A", "", "C"])
    truth = read_references(written(tmp_path / "refs.txt", "A\nB\nC\nD\n"))
    with pytest.raises(UserError, match=r"a.txt has 3 reports, .*refs.txt 4; .*: write an empty"):
        pair_reports(read_predictions(tmp_path / "a.txt"), truth, missing="empty")


def test_columns_of_other_names(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "\ufeffstudy,text,x\n1,Clear.,9\n")
    with pytest.raises(UserError, match=r"no column 'report' or .*; it has study, text, x; name"):
        read_predictions(path)
    with pytest.raises(UserError, match=r"no column 'txt'; .* did you mean .*column=text\?"):
        read_predictions(path, Columns(prediction="txt"))
    assert only(path, Columns(id="study", prediction="text")) == (["1"], ["Clear."])


def test_a_file_of_truth_and_prediction_is_ambiguous_until_one_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "id,report,prediction\n1,Large heart.,Clear.\n")
    with pytest.raises(UserError, match="'report' and 'prediction'; name one with"):
        read_predictions(path)
    assert only(path, Columns(prediction="prediction")) == (["1"], ["Clear."])
    assert read_references(path).texts == [["Large heart."]]


def test_an_impression_beside_the_findings_is_not_left_out_unsaid(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.csv", "id,findings,impression,both\n1,Clear.,Edema.,Clear. Edema.\n"
    )
    found = read_references(path)
    assert found.texts == [["Clear."]]
    (line,) = found.notes
    assert line.startswith(f"{path}: references are the column 'findings' alone; 'impression' is")
    assert "eval.reference_column" in line
    # who names a column knows of the other
    for name in ("findings", "both"):
        assert read_references(path, Columns(reference=name)).notes == (
            f"{path}: references are the column {name!r}.",
        )


def test_several_references_of_an_id_and_blank_ones_count_for_none(tmp_path: Path) -> None:
    text = "id,reference\n1,one\n1,\n2, \n2,\n1,two\n3,only\n1,one\n"
    lists = [
        {"id": 1, "reference": ["one", None, "", "one", "two"]},
        {"id": 2, "reference": [" ", None]},
        {"id": 3, "reference": "only"},
    ]
    for path in (
        written(tmp_path / "a.csv", text),
        written(tmp_path / "a.json", json.dumps(lists)),
    ):
        found = read_references(path)
        assert found.ids == ["1", "2", "3"]
        assert found.texts == [["one", "two"], [" "], ["only"]]
        _, line = found.notes
        assert line.endswith("1 blank references, of ids that have others, count for none.")


def test_empty_lines_of_one_column_are_empty_reports(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "report\nA\n\nC\n\n\n")
    assert only(path) == (None, ["A", "", "C"])
    path = written(tmp_path / "b.csv", "id,report\n1,A\n\n2,C\n")
    assert only(path) == (["1", "2"], ["A", "C"])


def test_half_characters_are_replaced_aloud(tmp_path: Path) -> None:
    text = r'{"1": "Clear.\ud83d", "2": "A\ud83d\ude00", "3": ["a\udc00"]}'
    found = read_references(written(tmp_path / "a.json", text))
    assert found.texts == [["Clear.\ufffd"], ["A\U0001f600"], ["a\ufffd"]]
    line, _ = found.notes
    assert "half characters (lone surrogates) in 2 rows are read as U+FFFD" in line
    text = r'{"id": 1, "report": "x\ud83d"}'
    (mine,) = read_predictions(written(tmp_path / "a.jsonl", text)).values()
    assert mine.texts == [["x\ufffd"]] and "in 1 rows" in mine.notes[0]


@pytest.mark.parametrize("val", [{}, {"val": []}])
def test_splits_of_an_annotation(tmp_path: Path, val: dict[str, list]) -> None:
    splits = {"train": [{"id": "a", "report": "x"}], "test": [{"id": "b", "report": "y"}], **val}
    path = written(tmp_path / "annotation.json", json.dumps(splits))
    assert read_references(path, split="test").ids == ["b"]
    line = "holds no row" if val else "the splits train, test, not val; choose with eval.split"
    with pytest.raises(UserError, match=line):
        read_references(path, split="val")


def test_rows_of_a_split_are_taken_where_they_are_wanted(tmp_path: Path) -> None:
    rows = [{"id": 1, "report": "x", "split": "train"}, {"id": 2, "report": "y", "split": "test"}]
    lines = "\n".join(map(json.dumps, rows))
    texts = {"a.csv": "id,report,split\n1,x,train\n2,y,test\n", "a.jsonl": lines}
    for name, text in (texts | {"a.json": json.dumps(rows)}).items():
        path = written(tmp_path / name, text)
        assert read_references(path, split="train", split_column=True).ids == ["1"]
        # a file of references is read whole
        assert read_references(path, split="train").ids == ["1", "2"]
        with pytest.raises(UserError, match="no row of the split 'val'; .*: 'train', 'test'"):
            read_references(path, split="val", split_column=True)
    path = written(tmp_path / "b.jsonl", lines + '\n{"id": 3, "report": "z"}')
    with pytest.raises(UserError, match="b.jsonl:3 has no 'split'"):
        read_references(path, split="train", split_column=True)


def test_the_columns_of_ids_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "id,study_id,reference\n1,s1,x\n1,s2,y\n2,,z\n")
    found = read_references(path)
    assert found.id_column == "id"
    assert found.named == {"id": {"1": {"1"}, "2": {"2"}}, "study_id": {"1": {"s1", "s2"}}}
    found = read_references(path, Columns(id="id"))
    assert (found.id_column, found.named) == ("id", {})


def test_ids_are_named_apart_in_predictions_and_references(tmp_path: Path) -> None:
    """In every format; a side that is not named takes the column of both, then the usual one."""
    row = {"id": "1", "dicom_id": "2", "report": "x"}
    table = [",".join(row), ",".join(row.values())]
    texts = {
        "a.csv": "\n".join(table),
        "a.tsv": "\n".join(table).replace(",", "\t"),
        "a.json": json.dumps([row]),
        "a.jsonl": json.dumps(row),
    }
    for name, text in texts.items():
        path = written(tmp_path / name, text)
        for columns, wanted in (
            (Columns(), "11"),
            (Columns(id="dicom_id"), "22"),
            (Columns(prediction_id="dicom_id"), "21"),
            (Columns(reference_id="dicom_id"), "12"),
            (Columns(id="dicom_id", reference_id="id"), "21"),
            (Columns(id="dicom_id", prediction_id="id"), "12"),
        ):
            (mine,) = read_predictions(path, columns).values()
            ids = [mine.ids, read_references(path, columns).ids]
            assert ids == [[key] for key in wanted], (name, columns)
            used = {"1": "id", "2": "dicom_id"}[wanted[0]]
            assert (mine.id_column, mine.columns) == (used, "id, dicom_id, report")


def test_a_column_that_is_absent_is_told_with_file_columns_and_setting(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "key,words\n1,x\n")
    for read, named, setting in (
        (read_predictions, {"prediction_id": "uid"}, "eval.prediction_id_column"),
        (read_predictions, {"id": "uid"}, "eval.prediction_id_column"),
        (read_predictions, {"prediction": "text"}, "eval.prediction_column"),
        (read_references, {"reference_id": "uid"}, "eval.reference_id_column"),
        (read_references, {"id": "uid"}, "eval.reference_id_column"),
        (read_references, {"reference": "text"}, "eval.reference_column"),
        (read_references, {"labels": "gold"}, "eval.labels_column"),
    ):
        columns = Columns(**{"prediction": "words", "reference": "words", **named})
        (lacking,) = named.values()
        line = f"{path} has no column {lacking!r}; it has key, words; name it with {setting}"
        with pytest.raises(UserError) as raised:
            read(path, columns)
        assert str(raised.value) == line


HEADER = "id," + ",".join(OBSERVATIONS)


def test_labels_of_chexpert_columns_without_reports(tmp_path: Path) -> None:
    cells = ["1.0", "0", "-1", "", *[""] * 9, "0.0"]
    path = written(tmp_path / "gold.csv", f"{HEADER}\n7,{','.join(cells)}\n")
    found = read_references(path)
    assert found.texts == [[]] and found.labels is not None
    assert found.labels.tolist() == [[1, 2, 3, *[0] * 10, 2]]


@pytest.mark.parametrize(
    ("value", "wanted"), [(["Edema"], [0] * 4 + [1] + [0] * 9), ([3, *[0] * 13], [3, *[0] * 13])]
)
def test_labels_of_a_list(tmp_path: Path, value: list, wanted: list[int]) -> None:
    row = {"id": 1, "reference": "x", "gold": value}
    path = written(tmp_path / "a.jsonl", json.dumps(row))
    assert read_references(path).labels is None
    labels = read_references(path, Columns(labels="gold")).labels
    assert labels is not None and labels.tolist() == [wanted]
    # a CSV holds the list as text
    text = '"' + json.dumps(value).replace('"', '""') + '"'
    path = written(tmp_path / "a.csv", f"id,reference,gold\n1,x,{text}\n")
    again = read_references(path, Columns(labels="gold")).labels
    assert again is not None and again.tolist() == [wanted]


REFUSED = table("refused files")


@pytest.mark.parametrize("name", REFUSED)
def test_bad_files_are_refused_by_name(tmp_path: Path, name: str) -> None:
    text, line = REFUSED[name]
    with pytest.raises(UserError, match=line) as told:
        read_predictions(written(tmp_path / name, text))
    assert name in str(told.value) and "\n" not in str(told.value)


LABELLED = f"{HEADER},reference\n"
LATE = [{"id": 1, "reference": "x"}, {"id": 2, "reference": "x", **dict.fromkeys(OBSERVATIONS, 1)}]
BAD_LABELS = {
    "class.csv": (
        f"{LABELLED}1,2{',' * 13},x\n",
        "Enlarged Cardiomediastinum is '2'; wanted 1 pos",
    ),
    "some.csv": ("id,reference,Edema\n1,x,1\n", "has 1 of the 14 label columns and lacks Enlarged"),
    "rows.csv": (f"{LABELLED}1,1{',' * 13},x\n1,0{',' * 13},x\n", "labels of id '1' differ"),
    "late.jsonl": (
        "\n".join(map(json.dumps, LATE)),
        "late.jsonl:1 has no 'Enlarged.*', which other",
    ),
}


@pytest.mark.parametrize("name", BAD_LABELS)
def test_bad_labels_are_refused_where_labels_are_wanted(tmp_path: Path, name: str) -> None:
    text, line = BAD_LABELS[name]
    with pytest.raises(UserError, match=line):
        read_references(path := written(tmp_path / name, text))
    assert read_references(path, want_labels=False).labels is None


def test_labels_that_are_not_there_and_of_another_spelling(tmp_path: Path) -> None:
    path = written(tmp_path / "b.csv", "id,reference\n1,x\n")
    with pytest.raises(UserError, match="has no labels; wanted the 14 CheXpert columns"):
        read_references(path, want_labels=True)
    rows = '{"id": 1, "reference": "x", "gold": ["Oedema"]}'
    path = written(tmp_path / "c.jsonl", rows)
    with pytest.raises(UserError, match="'Oedema' is none of .*; did you mean 'Edema'"):
        read_references(path, Columns(labels="gold"))


MARKED = ("nan", "NaN", "NA", "N/A", "n/a", "<NA>", "#N/A", "null", "NULL", "None", "None.", "NONE")
MARKED += ("\\N", "-", ".", "--", "NaT", "N/A.", "nan nan", "#NAME?", "NaN,", "___", "?", "<br>")
MARKED += ("<p></p>", "&nbsp;")
TEXTS = ["Normal.", "No.", "Clear."]


def files_of(folder: Path) -> Iterator[Path]:
    """The markers, then TEXTS, in each kind of file; JSON has null and NaN too."""
    cells = [*MARKED, *TEXTS]
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        lines = [f'{n}{delimiter}"{cell}"' for n, cell in enumerate(cells)]
        text = "\n".join([f"id{delimiter}report", *lines])
        yield written(folder / f"a{suffix}", text)
    rows = [{"id": n, "report": r} for n, r in enumerate([None, float("nan"), *cells])]
    yield written(folder / "a.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    yield written(folder / "a.json", json.dumps(rows))
    yield written(folder / "b.json", json.dumps({r["id"]: r["report"] for r in rows}))


def test_a_report_that_says_that_nothing_is_there_is_an_empty_one(tmp_path: Path) -> None:
    """The rules label a text without findings No Finding: "nan" would hit a normal study."""
    for path in files_of(tmp_path):
        (mine,) = read_predictions(path).values()
        texts = [text for (text,) in mine.texts]
        assert texts == [""] * (len(texts) - 3) + TEXTS, path
        nan = path.suffix in (".jsonl", ".json")
        assert f": {len(MARKED) + nan} texts say that nothing is there" in mine.notes[-1], path
        truth = read_references(path)
        assert truth.texts[-4:] == [[""], *([text] for text in TEXTS)]
        assert {tuple(texts) for texts in truth.texts[:-3]} <= {("",), ()}
        assert any(f": {len(MARKED) + nan} texts say" in line for line in truth.notes)
        mine_scored = pair_reports({"mine": mine}, truth)
        assert any("reports are empty" in line for line in mine_scored.notes)
    path = written(tmp_path / "c.csv", "id,reference\n1,NA\n1,Clear.\n2,nan\n")
    assert read_references(path).texts == [["Clear."], [""]]


def test_what_excel_and_pandas_do_to_a_file(tmp_path: Path) -> None:
    for name, head in (("a.csv", "sep=;\n"), ("b.tsv", "\ufeffSEP=;\r\n"), ("c.csv", '"sep=;"\n')):
        path = written(tmp_path / name, f"{head}id;report\n1;A, B\n2;C\n")
        assert only(path) == (["1", "2"], ["A, B", "C"])
        path = written(tmp_path / name, f"{head}id;report\n1;A;B\n")
        with pytest.raises(UserError, match=f"{name}:3 has 3 cells"):
            read_predictions(path)
    path = written(tmp_path / "d.csv", "sep=\t\nid\treport\n1\tA\n")
    assert only(path) == (["1"], ["A"])
    for ids, wanted in (
        (["50414267.0", "7.0"], ["50414267", "7"]),
        (["50414267.0", "7.5"], ["50414267.0", "7.5"]),
        (["7.0", "7"], ["7.0", "7"]),
        (["v1.0", "7.0"], ["v1.0", "7.0"]),
    ):
        path = written(tmp_path / "e.csv", "id,report\n" + "".join(f"{i},A\n" for i in ids))
        assert only(path)[0] == wanted


def test_blank_columns_and_rows_and_marks_of_byte_order_are_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "\ufeff\ufeffid,report,,\n1,Clear.,,\n,, ,\n,,,\n")
    assert only(path) == (["1"], ["Clear."])
    path = written(tmp_path / "a.csv", "report,\nClear.,\n,\n,,,\n")  # one of no words
    assert only(path) == (None, ["Clear.", ""])
    path = written(tmp_path / "a.csv", f"{HEADER[3:]}\n1{',' * 13}\n{',' * 13}\n")  # a normal film
    assert read_references(path).labels.sum(1).tolist() == [1, 0]
    with pytest.raises(UserError, match="has two columns 'report'"):
        read_predictions(written(path, "id,report,,report\n1,Clear.,,\n"))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_the_header_tells_the_delimiter(tmp_path: Path, name: str, delimiter: str) -> None:
    text = "id|report\n1|Clear.\n2|Heart normal.\n".replace("|", delimiter)
    assert only(written(tmp_path / name, text)) == (["1", "2"], ["Clear.", "Heart normal."])


def test_a_cell_of_tokens_beside_the_report_is_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", f'id,report,tokens\n1,Clear.,"{"12, " * 50_000}"\n')
    limit = csv.field_size_limit()
    assert only(path) == (["1"], ["Clear."])
    assert csv.field_size_limit() == limit
    with pytest.raises(UserError, match=r"a.csv:3 is no CSV .*; look for a quote that is not"):
        read_predictions(written(path, 'id,report\n1,"Clear.\n2,Heart.\n'))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_nul_is_refused_with_its_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name].replace("effusion", "eff\0usion").encode())
    with pytest.raises(
        UserError, match=rf"{name}:\d holds a NUL, as UTF-16 does; save it as UTF-8"
    ):
        read_predictions(path)
