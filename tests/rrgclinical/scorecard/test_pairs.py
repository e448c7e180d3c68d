"""Predictions beside references: joined by id, and nothing dropped without a word."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest

from rrgclinical import build_labeller
from rrgclinical.common.errors import UserError
from rrgclinical.scorecard import (
    Pairs,
    Reports,
    SystemReading,
    pair_reports,
    read_predictions,
    read_references,
)
from rrgclinical.scorecard.implementations import compare_implementations
from tests.rrgclinical.scorecard.test_read import written
from tests.rrgtrain.bounded import bounded

TRUTH = Reports(Path("truth.csv"), ["a", "b", "c"], [["A"], ["B", "B2"], ["C"]])


def reports(ids: str | None, *texts: str) -> Reports:
    return Reports(Path("mine.csv"), None if ids is None else list(ids), [[t] for t in texts])


def test_a_reference_without_prediction_stops_or_counts_as_empty() -> None:
    """Joined by id, in the order of the references."""
    mine = {"mine": reports("ca", "c", "a")}
    with pytest.raises(UserError, match=r"1 of 3 references .* no prediction .*\('b'\); write"):
        pair_reports(mine, TRUTH)
    pairs = pair_reports(mine, TRUTH, missing="empty")
    assert pairs.ids == ["a", "b", "c"] and pairs.systems == {"mine": ["a", "", "c"]}
    assert pairs.references == [["A"], ["B", "B2"], ["C"]]
    assert pairs.notes[0].startswith("mine: 1 of 3 references have no prediction and count as emp")
    assert pair_reports({"mine": reports("cab", "c", "a", "b")}, TRUTH).notes == []


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


def test_empty_reports_and_references_are_counted() -> None:
    truth = Reports(Path("truth.csv"), ["a", "b"], [["A"], [" "]])
    pairs = pair_reports({"mine": reports("ab", "\n", "b")}, truth)
    assert pairs.systems == {"mine": ["\n", "b"]}
    assert pairs.notes == [
        "mine: 1 of 2 reports are empty ('a').",
        "1 of 2 references are empty ('b').",
    ]


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


REFERENCES = [
    "The heart is enlarged. Small effusion.",
    "No acute disease.",
    "Mild pulmonary edema.",
]
REPORTS = {"a": ["Large heart. Small effusions.", "no acute disease", ""], "b": REFERENCES}
LABELLER = build_labeller("rules")
LABELS = LABELLER.label(REFERENCES)


def compared(references: Sequence[list[str]] | None = None) -> dict[str, list[str]]:
    """Return the cells of each line of the table, and the lines beneath it without any."""
    pairs = Pairs(["1", "2", "3"], [*(references or [[r] for r in REFERENCES])], REPORTS)
    readings = {name: SystemReading(LABELLER.label(texts)) for name, texts in REPORTS.items()}
    table, _, said = compare_implementations(pairs, LABELS, readings, meteor=False).partition(
        "\n\n"
    )
    lines = [line.rsplit(maxsplit=2) for line in table.splitlines()]
    return {name.strip(): cells for name, *cells in lines} | {s: [] for s in said.splitlines()}


def test_every_installed_package_has_its_rows_beside_ours() -> None:
    rows = compared()
    named = {
        name.split(", ", 1)[1].split(":")[0]
        for name, cells in rows.items()
        if ": " in name and cells
    }
    versions = {
        p: metadata.version(p) for p in ("sacrebleu", "nltk", "pycocoevalcap", "rouge-score")
    }
    assert named == {"rrgclinical", *(f"{p} {v}" for p, v in versions.items())}
    for metric in ("BLEU-4", "ROUGE-L", "CIDEr"):
        ours = rows[f"{metric}, rrgclinical: space words"]
        theirs = rows[f"{metric}, pycocoevalcap {versions['pycocoevalcap']}: texts as they are"]
        assert ours == theirs
    rouge = f"ROUGE-L F1, rouge-score {versions['rouge-score']}: "
    assert rows["ROUGE-L F1, rrgclinical: no stemmer"] == rows[f"{rouge}no stemmer"]
    assert rows[f"{rouge}with stemmer"] > rows[f"{rouge}no stemmer"]
    sacre = f"BLEU-4, sacrebleu {versions['sacrebleu']}: corpus, 13a"
    assert rows[f"{sacre}, lower case"][0] > rows[sacre][0] and rows[sacre][1] == "1.0000"
    assert "scikit-learn is not installed: pip install scikit-learn" in rows


def test_studies_may_have_several_references() -> None:
    twice = compared([[r, r] for r in REFERENCES])
    assert {k: v for k, v in twice.items() if "CIDEr" not in k} == {
        k: v for k, v in compared().items() if "CIDEr" not in k
    }
    more = compared([[REFERENCES[0], REPORTS["a"][0]], *([r] for r in REFERENCES[1:])])
    name = f"BLEU-4, sacrebleu {metadata.version('sacrebleu')}: corpus, 13a"
    assert more[name][0] > twice[name][0]
    with pytest.raises(UserError, match="needs a reference report for every study"):
        compared([[], ["a"], ["b"]])
