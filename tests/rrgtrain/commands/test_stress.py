"""`rrgtrain stress`: tables of planted errors, the strict exit, and a reader's own pairs."""

from __future__ import annotations

import csv
import json
import os

import pytest

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
        writer.writerows(
            [*row, how] for row, how in zip(rows[: len(preferred)], preferred, strict=True)
        )
    return str(path)


def test_numbers_that_mean_which_report_are_refused(tmp_path, capsys, refusal):
    # 2 for "the second" was read as: the first is better by 2
    line = refusal("stress", "--against", pairs_file(tmp_path, ["1", "2", "2"]))
    assert "preferred holds 1 and 2 alone; wanted first, second, tie" in line
    assert main(["stress", "--against", pairs_file(tmp_path, ["1", "0", "-2"])]) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 pairs: first better in 1, second in 1, 1 tied; tau-b")
    assert main(["stress", "--against", pairs_file(tmp_path, ["1"])]) == 0
    assert capsys.readouterr().out.startswith("1 pair: first better in 1,")


def test_a_drawing_is_an_svg(tmp_path, refusal):
    line = refusal("stress", *FEW, "--svg", str(tmp_path / "dots.png"))
    assert "name a file that ends in .svg" in line


def test_own_pairs(tmp_path, capsys, refusal):
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
        assert line in refusal("stress", "--against", pairs_file(tmp_path, preferred), *words)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"second": None}, "second is missing"),
        ({"first": ["Edema."]}, "first is no text"),
        ({"first": {"text": "Edema."}}, "first is no text"),
        ({"second": 3}, "second is no text"),
        ({"reference": " "}, "reference is blank"),
    ],
)
def test_a_pair_without_a_text_is_no_pair(tmp_path, refusal, change, line):
    # each was scored: null as an empty report, a list as its Python form
    whole = {"reference": "Edema.", "first": "Edema.", "second": "", "preferred": "first"}
    path = tmp_path / "pairs.jsonl"
    words = ["stress", "--against", str(path), "reward.terms={severity: 1}"]
    path.write_text(json.dumps(whole) + "\n")
    assert main(words) == 0  # an empty report is one
    path.write_text(f"{json.dumps(whole)}\n{json.dumps({**whole, **change})}\n")
    assert f"pairs.jsonl:2: {line}; wanted" in refusal(*words)
    if change == {"second": None}:
        del whole["second"]
        path.write_text(f"{path.read_text().splitlines()[0]}\n{json.dumps(whole)}\n")
        assert "2: second is missing" in refusal(*words)


def test_words_that_would_do_nothing_are_refused(tmp_path, refusal):
    pairs = pairs_file(tmp_path, ["first", "second", "tie"])
    for idle in (["--strict"], ["--svg", str(tmp_path / "a.svg")], ["--reports", pairs]):
        line = refusal("stress", "--against", pairs, *idle)
        assert "--against plants no errors; leave out" in line


def test_a_bad_table_is_not_told_as_of_an_empty_report(refusal):
    words = ["reward.terms={severity: 1}", "reward.options={severity: {table: nosuch.yaml}}"]
    line = refusal("stress", *FEW, *words)
    assert "nosuch.yaml: No such file or directory" in line and "empty report" not in line


def test_a_report_or_a_table_of_no_end_is_refused_at_once(tmp_path, refusal):
    rows = [{"reference": "Edema.", "first": "Edema.", "second": "", "preferred": "first"}] * 2
    rows[1] = {**rows[1], "second": "Edema " * 50_000}
    pairs, reports = tmp_path / "pairs.jsonl", tmp_path / "reports.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reports.write_text(json.dumps({"id": 1, "report": rows[1]["second"]}) + "\n")
    table = tmp_path / "table.yaml"
    table.write_text("#" * 2**21)
    severity = ["reward.terms={severity: 1}"]
    for words, line in (
        (["--against", str(pairs)], "pairs.jsonl:2: second has 300,000 characters; wanted at most"),
        (["--reports", str(reports)], "reports.jsonl:1: 'report' has 299,999 characters; wanted"),
        (
            [f"reward.options={{severity: {{table: {table}}}}}"],
            "characters; wanted at most 1,048,576); write it as the packaged",
        ),
    ):
        assert line in refusal("stress", *FEW, *severity, *words)


def test_directories_above_a_drawing_come_with_it(tmp_path, refusal):
    svg, gone = tmp_path / "new" / "deep" / "a.svg", tmp_path / "gone.csv"
    words = ["stress", *FEW, "reward.terms={severity: 1}", "--svg", str(svg)]
    line = refusal(*words, "--reports", str(gone))
    assert "gone.csv cannot be read" in line and not list(tmp_path.iterdir())
    assert main(words) == 0 and svg.read_text().startswith("<svg")


def test_a_drawing_replaces_no_other_file_and_no_device(tmp_path, capsys):
    texts = tmp_path / "reports.csv"
    texts.write_text("id,report\n1,No acute disease.\n")
    study = tmp_path / "CXR1.xml"
    study.write_text('<?xml version="1.0"?><eCitation/>')
    (tmp_path / "is").write_text("a file")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to(os.devnull)
    (tmp_path / "out").symlink_to("/proc/self/fd/1")
    before = sorted((p.name, p.is_symlink(), p.is_file()) for p in tmp_path.iterdir())
    for svg, line in (
        (texts, "is there and is no drawing"),
        (study, "is there and is no drawing"),
        (tmp_path, "is a directory"),
        (tmp_path / "pipe", "is a device, a pipe or a stream"),
        (tmp_path / "null", "is a device, a pipe or a stream"),
        (tmp_path / "out", "is a device, a pipe or a stream"),
        (tmp_path / "is" / "a.svg", "is a file"),
    ):
        assert main(["stress", "--reports", str(texts), "--svg", str(svg)]) == 2
        told = capsys.readouterr()
        assert line in told.err and not told.out, svg
    assert texts.read_text().startswith("id,report")
    assert before == sorted((p.name, p.is_symlink(), p.is_file()) for p in tmp_path.iterdir())
