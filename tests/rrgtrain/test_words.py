"""Words of the command line that are told with their mend before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rrgtrain.cli import main


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("report ~/no/where", f"no run in {Path.home()}/no/where;"),
        ("eval --references=~/r.csv --predictions A=~/no.csv", f" {Path.home()}/no.csv cannot be"),
        ("eval --predictions a.csv b.q.csv --references r.csv", " b.q.csv is no setting; say --pr"),
        ("eval --predictions A=a.csv B=b.json", " B=b.json is no setting; say --predictions"),
        ("eval --predictions a.csv eval.training_reports=b.csv", "required: --references"),
        ("plan --gpus 8 scale.mode=none", " scale.mode=none is one process, --gpus 8 several"),
    ],
)
def test_one_line_names_the_mend(
    words: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    out = ["--out", "r"] if words.startswith("eval") else []
    assert main([*words.split(), *out]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
