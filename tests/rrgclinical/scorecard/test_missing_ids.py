"""A missing id or system, as pandas and R write one, is no name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rrgclinical.common.errors import UserError
from rrgclinical.scorecard import read_predictions, read_references


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
