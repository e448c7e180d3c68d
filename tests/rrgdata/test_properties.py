"""Labels do not depend on how a report is written; what cannot be read as it stands is told."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from rrgclinical.facts import RulesFacts
from rrgclinical.rules import join_lines, plain_lines
from rrgclinical.severity import read
from rrgdata.check import CARRIERS, MARKS, try_properties
from rrgtrain.cli import main
from tests.real_data import IU_XRAY

MOST = 0.003
"""Share of the reports that a way of writing may change."""


@pytest.mark.realdata
@pytest.mark.skipif(not IU_XRAY.is_dir(), reason=f"no real data at {IU_XRAY}; set RRG_DATA")
def test_real_reports_say_the_same_in_each_way() -> None:
    rows = map(json.loads, (IU_XRAY / "sections.jsonl").read_text().splitlines())
    texts = [f"{row['findings'] or ''} {row['impression'] or ''}".strip() for row in rows]
    tried = list(try_properties(texts[::4]))
    assert len(tried) > 2 * len(CARRIERS) + len(MARKS)
    assert all(change.tried > 50 for change in tried)
    assert {c.way: c.changed for c in tried if c.changed > MOST * c.tried} == {}


@pytest.mark.parametrize("name", CARRIERS)
def test_a_carrier_hands_on_the_lines(name: str) -> None:
    lines = ["No {effusion} or", "edema.", "", "Small 3 cm mass"]
    read = plain_lines(CARRIERS[name]("\n".join(lines)))
    assert [line.strip(' "') for line in read.strip("\n").split("\n")] == lines


SAID = "No effusion or edema.\nSmall left pneumothorax, and cardiomegaly.\nNo cafe."
ROWS = "Pleural effusion: None\nPneumothorax: No\nCardiomegaly: Yes"


@pytest.mark.parametrize(
    ("plain", "written"),
    [
        *((SAID, write(SAID)) for write in CARRIERS.values()),
        (SAID.replace("fe", "f\u00e9"), SAID.replace("fe", "fe\u0301")),
        (ROWS, ROWS.replace(": ", "\t")),
    ],
)
def test_facts_and_findings_are_those_of_the_plain_text(plain: str, written: str) -> None:
    said, same = RulesFacts().read([plain, written])
    assert [fact.strip('".') for fact in same.facts] == list(said.facts)
    assert (same.verdicts, same.evidence) == (said.verdicts, said.evidence)
    first, second = read(plain), read(written)
    assert second[:3] == first[:3] and second.silent == first.silent
    assert "\t" in written or join_lines(written).strip('"') == join_lines(plain)


def table(path: Path, reports: list[str]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "report"), *enumerate(reports)])
    return str(path)


def check(capsys: pytest.CaptureFixture, *words: str) -> str:
    assert main(["data", "check", *words, "data.images=none"]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_check_names_what_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CARRIERS, "a sign that is not read", lambda text: text.replace("\n", "no"))
    reports = ["No effusion.", "A ___ tube.", "Edema. No effusion."]
    file = table(tmp_path / "mine.csv", reports)
    plainly, tried = check(capsys, file), check(capsys, file, "--properties")
    assert "their labels must not change" in tried and tried.startswith(plainly)
    assert "taken out: XXXX 1 0 0.00% -" in tried
    assert "a line each, by RTF document 3 0 0.00% -" in tried
    assert "a line each, by a sign that is not read 3 1 33.33% 2" in tried


@pytest.mark.parametrize(
    ("reports", "line"),
    [
        (["Sin derrame pleural."] * 8 + ["No edema."] * 3, "8 of 11 reports have none of"),
        ([r"{\rtf1 No effusion.}", "No edema."], "1 reports are documents in RTF"),
    ],
)
def test_what_is_not_read_as_it_stands_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture, reports: list[str], line: str
) -> None:
    assert line in check(capsys, table(tmp_path / "mine.csv", reports))
    assert line not in check(capsys, table(tmp_path / "other.csv", reports[-1:]))
