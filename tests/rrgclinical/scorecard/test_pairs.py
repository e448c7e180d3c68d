"""Predictions beside references: joined by id, and nothing dropped without a word."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import json
import lzma
from pathlib import Path

import pytest

from rrgclinical.common.errors import UserError
from rrgclinical.scorecard import Reports, pair_reports, read_predictions, read_references
from tests.rrgtrain.bounded import bounded

TRUTH = Reports(Path("truth.csv"), ["a", "b", "c"], [["A"], ["B", "B2"], ["C"]])


def reports(ids: str | None, *texts: str) -> Reports:
    return Reports(Path("mine.csv"), None if ids is None else list(ids), [[t] for t in texts])


def test_reports_are_joined_by_id_in_the_order_of_the_references() -> None:
    pairs = pair_reports({"mine": reports("cab", "c", "a", "b")}, TRUTH)
    assert pairs.ids == ["a", "b", "c"] and pairs.systems == {"mine": ["a", "b", "c"]}
    assert pairs.references == [["A"], ["B", "B2"], ["C"]] and pairs.notes == []


def test_a_reference_without_prediction_stops_or_counts_as_empty() -> None:
    mine = {"mine": reports("ca", "c", "a")}
    with pytest.raises(UserError, match=r"1 of 3 references .* no prediction .*\('b'\); write"):
        pair_reports(mine, TRUTH)
    pairs = pair_reports(mine, TRUTH, missing="empty")
    assert pairs.systems == {"mine": ["a", "", "c"]} and len(pairs.references) == 3
    assert pairs.notes[0].startswith("mine: 1 of 3 references have no prediction and count as emp")


def test_a_prediction_without_reference_stops_or_is_left_out_aloud() -> None:
    mine = {"mine": reports("abcdefgh", *"abcdefgh")}
    with pytest.raises(UserError, match=r"5 of 8 predictions .*\('d', 'e', 'f' and 2 more\); add"):
        pair_reports(mine, TRUTH)
    pairs = pair_reports(mine, TRUTH, extra="leave_out")
    assert pairs.systems == {"mine": ["a", "b", "c"]}
    assert pairs.notes == [
        "mine: 5 predictions without reference are left out ('d', 'e', 'f' and 2 more)."
    ]


def test_files_of_no_common_id_are_never_all_empty_reports() -> None:
    with pytest.raises(UserError, match=r"no id of mine.csv is in truth.csv: 'x' against 'a'"):
        pair_reports({"mine": reports("x", "t")}, TRUTH, missing="empty", extra="leave_out")


@pytest.mark.parametrize("side", ["predictions", "references"])
def test_ids_that_lost_their_zeros_are_refused_with_the_cause(side: str) -> None:
    whole, shorn = ["00123", "100", "007"], ["123", "100", "7"]
    mine, theirs = (shorn, whole) if side == "predictions" else (whole, shorn)
    truth = Reports(Path("truth.csv"), theirs, [["A"], ["B"], ["C"]])
    line = (
        f"mine.csv has the id '{mine[0]}', truth.csv '{theirs[0]}': its zeros are lost; write the"
    )
    predictions = {"mine": Reports(Path("mine.csv"), mine, [["a"], ["b"], ["c"]])}
    with pytest.raises(UserError, match=line):
        pair_reports(predictions, truth, missing="empty", extra="leave_out")


def test_rows_are_joined_by_order_on_request_only() -> None:
    bare = Reports(Path("bare.csv"), None, [["A"], ["B"]])
    mine = {"mine": dataclasses.replace(reports(None, "a", "b"), columns="x, y")}
    with pytest.raises(UserError, match="has no ids; its columns are x, y: .* eval.join=row"):
        pair_reports(mine, bare)
    pairs = pair_reports(mine, bare, by="row")
    assert pairs.ids == ["0", "1"] and pairs.systems == {"mine": ["a", "b"]}
    with pytest.raises(UserError, match="mine.csv has 1 reports, bare.csv 2; rows can be joined"):
        pair_reports({"mine": reports(None, "a")}, bare, by="row")
    with pytest.raises(UserError, match="ids in another order"):
        pair_reports({"mine": reports("cab", *"cab")}, TRUTH, by="row")


def test_the_column_that_joins_is_named() -> None:
    truth = dataclasses.replace(TRUTH, id_column="id")
    mine = dataclasses.replace(reports("abc", *"abc"), id_column="id")
    assert pair_reports({"A": mine, "B": mine}, truth).notes == ["Joined by the column 'id'."]
    other = dataclasses.replace(mine, id_column="uid")
    line = "Joined by the column 'uid' of mine.csv and 'id' of truth.csv."
    assert pair_reports({"A": other}, truth).notes == [line]


def test_ids_that_another_column_denies_are_refused() -> None:
    studies = {"study_id": {"a": {"s1", "s2"}, "b": {"s3"}}}
    truth = dataclasses.replace(TRUTH, id_column="id", named=studies)
    mine = dataclasses.replace(reports("abc", *"abc"), id_column="id")
    agree = dataclasses.replace(mine, named={"study_id": {"a": {"s2"}, "c": {"s9"}}})
    assert pair_reports({"A": agree}, truth).ids == ["a", "b", "c"]
    differ = dataclasses.replace(mine, named={"study_id": {"a": {"s2"}, "b": {"s1"}}})
    line = r"'study_id' for 1 ids \('b'\) joined by 'id'; name .* eval.pred.* and eval.ref"
    with pytest.raises(UserError, match=line):
        pair_reports({"A": differ}, truth)


def test_notes_of_files_are_kept_once() -> None:
    truth = dataclasses.replace(TRUTH, notes=("truth.csv: a note.",))
    mine = dataclasses.replace(reports("abc", *"abc"), notes=("mine.csv: another.",))
    notes = pair_reports({"A": mine, "B": mine}, truth).notes
    assert notes == ["truth.csv: a note.", "mine.csv: another."]


def test_empty_reports_and_references_are_counted() -> None:
    truth = Reports(Path("truth.csv"), ["a", "b"], [["A"], [" "]])
    pairs = pair_reports({"mine": reports("ab", "\n", "b")}, truth)
    assert pairs.systems == {"mine": ["\n", "b"]}
    assert pairs.notes == [
        "mine: 1 of 2 reports are empty ('a').",
        "1 of 2 references are empty ('b').",
    ]


# A missing id or system, as pandas and R write one, is no name.
def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("marker", ["nan", "NA", "<NA>", "None", "#N/A", "-"])
def test_a_marker_is_no_id_and_no_system(tmp_path: Path, marker: str) -> None:
    """The rows of all missing ids would be one study, called nan."""
    path = written(tmp_path / "a.csv", f"id,report\n1,Clear.\n{marker},Clear.\n")
    for read in (read_predictions, read_references):
        with pytest.raises(
            UserError, match=f"a.csv:3 has an empty 'id', '{marker}'; give it an id"
        ):
            read(path)
    path = written(tmp_path / "b.csv", f"id,study_id,report\n1,{marker},Clear.\n")
    assert read_references(path).named == {"id": {"1": {"1"}}, "study_id": {}}
    path = written(tmp_path / "c.csv", f"id,system,report\n1,{marker},Clear.\n1,A,Clear.\n")
    assert list(read_predictions(path)) == ["c", "A"]
    row = {"id": float("nan"), "report": "Clear.", "system": float("nan")}
    with pytest.raises(UserError, match="has an empty 'id', 'nan'"):
        read_predictions(written(tmp_path / "d.jsonl", json.dumps(row)))
    (name,) = read_predictions(written(tmp_path / "d.jsonl", json.dumps({**row, "id": 1})))
    assert name == "d"


# Files of reports that a packer wrote, or that never end.
def test_a_packed_file_is_told_from_another_encoding(tmp_path: Path) -> None:
    content = b"id,report\n1,Clear lungs.\n"
    packed = {"gzip": gzip.compress(content), "xz": lzma.compress(content)}
    packed |= {"bzip2": bz2.compress(content), "zstd": b"\x28\xb5\x2f\xfd\x24\x00\x81"}
    for packer, data in packed.items():
        path = tmp_path / "p.csv"
        path.write_bytes(data)
        with pytest.raises(UserError, match=f"packed by {packer}; unpack it"):
            read_predictions(path)


def test_a_cell_that_never_ends_takes_four_bytes_for_each_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text('id,report\n1,"' + "x" * 50_000_000 + '"\n')

    def refusal() -> str:
        with pytest.raises(UserError) as error:
            read_predictions(path)
        return str(error.value)

    assert f"{path}:2 is no CSV (field larger than" in bounded(refusal, mib=230, seconds=20)
    # a break that only Unicode knows stays in its cell
    path.write_text('id,report\n1,"A\u2028B\x0bC\x85D\nE"\n2,F')
    (reports,) = read_predictions(path).values()
    assert reports.texts == [["A\u2028B\x0bC\x85D\nE"], ["F"]]
