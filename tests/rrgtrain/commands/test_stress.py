"""`rrgtrain stress`: tables of planted errors, the strict exit, and a reader's own pairs."""

from __future__ import annotations

import csv

from rrgtrain.cli import main

FEW = ["--studies", "20", "data.phantom.train=120"]


def line_of(out: str, begin: str) -> list[str]:
    return next(line for line in out.split("\n") if line.startswith(begin)).split()


def test_tables_figure_and_strict(tmp_path, capsys, monkeypatch):
    svg = tmp_path / "dots.svg"
    words = ["reward.terms={severity: 1, match: 1}", "--strict", "--svg", str(svg)]
    assert main(["stress", *FEW, *words]) == 1  # match charges for true denials
    out = capsys.readouterr().out
    assert float(line_of(out, "wrong side  ")[-2]) < float(line_of(out, "unchanged")[-2]) == 1
    assert "severity: 'true denials" not in out and "match: 'true denials added' costs more" in out
    shares = line_of(out, "4 any harmless change")[-2].split("/")
    assert int(shares[0]) >= 99
    assert line_of(out, "empty  ")[-2] == "0.000" and "every finding hedged" in out
    assert "no radiologist has set them" in out
    drawn = svg.read_text()
    assert drawn.startswith("<svg") and "wrong side" in drawn and drawn.count("<circle") > 60
    assert main(["stress", *FEW, "reward.terms={severity: 1}", "--strict"]) == 0

    (tmp_path / "words.py").write_text(
        "def count(report, reference):\n    return len(report) / (1 + len(reference))\n"
        "def fails(report, reference):\n    return 1 / len(report)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["stress", *FEW, "reward.terms={words:count: 1}"]) == 0
    assert "words:count" in capsys.readouterr().out
    assert main(["stress", *FEW, "reward.terms={words:fails: 1}"]) == 2
    assert "an empty report stops a run: reward term words:fails" in capsys.readouterr().err


def pairs_file(tmp_path, preferred):
    path = tmp_path / "pairs.csv"
    rows = [
        ("Left pleural effusion.", "Left pleural effusion.", "Right pneumothorax."),
        ("Edema.", "No edema.", "Mild edema."),
        ("Granuloma. Mass.", "Granuloma.", "Mass."),
    ]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["reference", "first", "second", "preferred"])
        writer.writerows([*row, how] for row, how in zip(rows, preferred, strict=True))
    return str(path)


def test_own_pairs(tmp_path, capsys):
    words = ["reward.terms={severity: 1}"]
    path = pairs_file(tmp_path, ["first", "second", "-2"])
    assert main(["stress", "--against", path, *words]) == 0
    assert line_of(capsys.readouterr().out, "severity ")[1:4] == ["3", "0", "0"]
    path = pairs_file(tmp_path, ["second", "second", "tie"])
    assert main(["stress", "--against", path, *words]) == 0
    assert line_of(capsys.readouterr().out, "severity ")[1:4] == ["1", "1", "0"]
    for preferred, line in (
        (["first", "", "tie"], "pairs.csv:3: preferred is missing"),
        (["first", "better", "tie"], "preferred is 'better'"),
        (["tie", "tie", "tie"], "has no pair with a preference"),
    ):
        assert main(["stress", "--against", pairs_file(tmp_path, preferred), *words]) == 2
        assert line in capsys.readouterr().err
