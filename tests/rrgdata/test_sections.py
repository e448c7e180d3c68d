"""Reports of every shape are cut by the stated rules, and nothing of them is lost.

The reports are made up; their shapes are those of MIMIC-CXR.
"""

from __future__ import annotations

import csv
import re
import textwrap
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrgclinical.rules import plain_lines
from rrgdata import ReportSections, cut_sections, read_sections
from rrgdata.catalogue import Catalogue
from rrgdata.check import CARRIERS
from rrgtrain.cli import main
from tests.real_data import IU_XRAY
from tests.rrgdata.common import studies_under, table

BOTH = dict(findings="Clear.", impression="Normal.")
# name, report, the fields that are not empty
CASES: list[tuple[str, str, dict[str, str]]] = [
    *map(tuple, table("sections")),
    *(
        (
            f"line ends {end!r}",
            "FINAL REPORT\nINDICATION: Cough.\nCOMPARISON: None.\n\nFINDINGS\nA.\n\n"
            "IMPRESSION\nB.\n".replace("\n", end),
            dict(indication="Cough.", comparison="None.", findings="A.", impression="B."),
        )
        for end in ("\r\n", "\r")
    ),
    *(
        (
            f"one blank behind {word}{place!r}",
            f" COMPARISON:{place}{word} FINDINGS: A.\n\n IMPRESSION: B.\n",
            dict(comparison=word, findings="A.", impression="B."),
        )
        for word in ("___", "____", "None", "Chest of ___,")
        for place in (" ", "\n ")
    ),
    *(
        (heading, f"COMPARISON: ___.\n {heading}: A.\n", {"comparison": "___."} | parts)
        for heading, parts in (
            ("COMPARISON/FINDINGS", {"findings": "A."}),
            ("FINDINGS AND COMPARISON", {"findings": "A."}),
            ("Comparison and findings", {"findings": "A."}),
            ("FINDINGS AND RECOMMENDATIONS", {"findings": "A."}),
            ("IMPRESSION AND RECOMMENDATION(S)", {"impression": "A."}),
            ("Impression/Recommendation", {"impression": "A."}),
            ("FINDINGS, IMPRESSION AND RECOMMENDATIONS", {"impression": "A."}),
        )
    ),
]
ENDED = (
    "IMPRESSION:\n1. A.\nEND OF IMPRESSION:\nSUMMARY: 1-B\nSigned by: C\nACCESSION NUMBER: 1",
    "IMPRESSION: 1. A. END OF IMPRESSION: SUMMARY: B ACCESSION NUMBER: 1",
)
CASES += [("the end of an impression", text, dict(impression="1. A.")) for text in ENDED]
EXPORTED = (
    "<section><title>Findings</title><text>Clear.</text></section>"
    "<section><title>Impressions</title><text>Normal.</text></section>",
    r"{\rtf1{\fonttbl{\f0 Arial;}}\f0 FINDINGS:\par Clear.\par\par IMPRESSION:\par Normal.}",
    r"FINDINGS:\E\.br\E\Clear.\E\.br\E\IMPRESSION:\E\.br\E\Normal.",
)
CASES += [(text[:9], text, BOTH) for text in EXPORTED]


@pytest.mark.parametrize(("report", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_report_is_cut(report, wanted) -> None:
    assert {k: v for k, v in asdict(read_sections(report)).items() if v} == wanted


def test_the_report_is_what_is_asked_for() -> None:
    both = ReportSections(findings="A.", impression="B.", unheaded="C.")
    assert [both.report(w) for w in ("findings", "impression", "both")] == ["A.", "B.", "A. B."]
    exported = ReportSections("A.", r"{\rtf1{\fonttbl{\f0 Arial;}}\f0 B.\par }")
    assert exported.report("both") == "A. B."
    assert Catalogue().read(exported.impression, "indication", "row 1", context=True) == "B."
    unheaded = ReportSections(impression="B.", unheaded="C.")
    assert [unheaded.report(w) for w in ("findings", "impression", "both")] == ["", "B.", "C. B."]
    once = read_sections("FINDINGS AND IMPRESSION: A.")
    assert [once.report(w) for w in ("findings", "impression", "both")] == ["A."] * 3


@pytest.mark.parametrize(("heading", "name"), table("headings"))
def test_a_heading_is_known(heading, name) -> None:
    assert cut_sections(f"{heading}: A.")[0].name == name


@pytest.mark.realdata
@pytest.mark.skipif(not IU_XRAY.is_dir(), reason=f"no real data at {IU_XRAY}; set RRG_DATA")
def test_real_findings_come_out_of_a_report_as_they_went_in() -> None:
    reports = [
        s.report or ""
        for of in studies_under("iu_xray", IU_XRAY, images="none").values()
        for s in of
    ]
    assert len(reports) == 2365
    for report in reports:
        findings = " ".join(report.split())
        lines = "\n ".join(textwrap.wrap(findings, 80, break_on_hyphens=False))
        headed = f" INDICATION: ___ cough.\n\n FINDINGS:\n\n {lines}\n\n IMPRESSION:\n\n None.\n"
        assert read_sections(headed).findings == findings
        assert read_sections(f" COMPARISON: ___.\n \n {lines}\n").unheaded == findings


WRITTEN = "INDICATION: Cough.\n\nFINDINGS: Clear lungs & bones.\nNo effusion.\n\nIMPRESSION: None."
ENDS = ["\r", "\r\n", "\f", "\v", "\x85", "\u2028", "\u2029", "<br>", "<BR />", "&lt;br&gt;"]
ENDS += ["&#10;", "&#13;&#10;", "&#xD;&#xA;", r"\n", r"\r\n", '<p class="x">', "</div>"]


@pytest.mark.parametrize("end", ENDS)
def test_a_line_ends_however_it_was_written(end) -> None:
    assert read_sections(WRITTEN.replace("\n", end)) == read_sections(WRITTEN)


def test_cells_of_a_table_and_spans_part_words() -> None:
    cells = "<td>FINDINGS:</td><td>No effusion.</td><td>Large pneumothorax.</td>"
    findings = read_sections(f"<table><tr>{cells}</tr></table>").findings
    assert findings == "No effusion. Large pneumothorax."
    link = read_sections("FINDINGS: Heart size<a href='x'>normal</a>. <b>N</b>o edema.")
    assert link.findings == "Heart size normal . No edema."


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


lines = st.one_of(
    st.sampled_from(
        [
            "FINAL REPORT",
            "FINAL ADDENDUM",
            "_" * 30,
            "FINDINGS:",
            " FINDINGS: Clear.",
            "IMPRESSION:  1. A",
            "ADDENDUM: b",
            "CHEST, TWO VIEWS: c",
            "COMPARISON: ___. FINDINGS: d",
            "INDICATION: ___  HISTORY: e",
            "LUNGS: f",
            "",
            " ",
        ]
    ),
    st.text(st.sampled_from("aB:_. 1é\t-()/"), max_size=20),
)
reports = st.lists(lines, max_size=12).map("\n".join)


@given(reports)
def test_headings_and_texts_are_the_report(report) -> None:
    assert squeezed("".join(s.heading + s.raw for s in cut_sections(report))) == squeezed(report)


@given(reports)
def test_what_is_read_stands_in_the_report(report) -> None:
    whole = squeezed(report)
    for section in cut_sections(report):
        assert squeezed(section.text) in whole
    for text in asdict(read_sections(report)).values():
        assert all(word in report for word in text.split())
        lines = text.split("\n")  # a line break stays where it alone parts two sentences
        assert lines == [" ".join(line.split()) for line in lines]


@given(reports)
def test_white_space_at_the_ends_of_lines_changes_nothing(report) -> None:
    trailing = "\n".join(line.rstrip() + "  " for line in report.split("\n"))
    once = read_sections("\n".join(line.rstrip() for line in report.split("\n")))
    assert read_sections(trailing) == once


@pytest.mark.parametrize("name", CARRIERS)
def test_a_carrier_hands_on_the_lines(name) -> None:
    lines = ["No {effusion} or", "edema.", "", "Small 3 cm mass"]
    read = plain_lines(CARRIERS[name]("\n".join(lines)))
    assert [line.strip(' "') for line in read.strip("\n").split("\n")] == lines


def table(path: Path, reports: list[str]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "report"), *enumerate(reports)])
    return str(path)


def check(capsys: pytest.CaptureFixture, *words: str) -> str:
    assert main(["data", "check", *words, "data.images=none"]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_check_names_what_changes(tmp_path, capsys, monkeypatch) -> None:
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
def test_what_is_not_read_as_it_stands_is_told(tmp_path, capsys, reports, line) -> None:
    assert line in check(capsys, table(tmp_path / "mine.csv", reports))
    assert line not in check(capsys, table(tmp_path / "other.csv", reports[-1:]))
