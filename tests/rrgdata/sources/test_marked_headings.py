"""Headings behind a number, a bullet or Markdown's marks are seen, and no others are."""

from __future__ import annotations

import time

import pytest

from rrgdata import ReportSections, read_sections


def test_a_heading_is_seen_behind_a_number_or_in_markdown() -> None:
    """Missed, the answer's heading would leave the answer in the prompt, or its number in it."""
    shapes = ["{}: ", "{} - ", "{} – ", "\u00a0{}: ", "{}:\n", "**{}:** ", "**{}**: ", "__{}:__\n"]
    shapes += ["# {}\n", "## {}\n", "### {}:\n", "**{}**\n", "- {}: ", "• {}: ", "> {}: "]
    marks = (("1.", "2."), ("1)", "2)"), ("(1)", "(2)"), ("I.", "II."), ("iv.", "v."), ("A.", "B."))
    names = ("FINDINGS", "IMPRESSION"), ("Findings", "Impression")
    failed = []
    for first, second in names:
        for shape in shapes:
            numbered = [(f"{a} ", f"{b} ") for a, b in marks] if shape == shapes[0] else []
            for one, two in (("", ""), *numbered):
                for between in ("\n", "\n\n"):
                    report = f"{one}{shape.format(first)}Clear lungs.{between}"
                    report += f"{two}{shape.format(second)}1. Normal.\n2. No change."
                    wanted = ReportSections("Clear lungs.", "1. Normal. 2. No change.")
                    if read_sections(report) != wanted:
                        failed.append(report)
        line = f"1. {first}: Clear lungs. 2. {second}: Normal."
        failed += [line] * (read_sections(line) != ReportSections("Clear lungs.", "Normal."))
    assert not failed
    line = read_sections(
        "Indication: cough. Comparison: None. Findings: Clear. Impression: Normal."
    )
    assert (line.indication, line.comparison) == ("cough.", "None.")
    assert (line.findings, line.impression) == ("Clear.", "Normal.")


NAMES = (("INDICATION", "FINDINGS", "IMPRESSION"), ("Indication", "Findings", "Impression"))
NUMBERS = ["{}: ", "{} ", "{} - ", "[{}] ", "{}.1 ", "#{} ", "{}./ ", "({}) ", "{}. "]
NUMBERS += ["Section {}: "]
SHAPES = ["[{}] ", "[{}]: ", "[{}:] ", "== {} ==\n", "=={}==\n", "_{}_: ", "_{}:_ ", '"{}": ']
SHAPES += ["\u201c{}\u201d: ", "{}\uff1a", "**{}**\uff1a ", "{}- ", "{} -- ", "{}:: ", "{} : "]
SHAPES += ["{}:"]
CUT = ReportSections("Clear.", "Normal.", indication="Cough.")


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("between", ["\n", "\n\n", " "])
def test_a_number_before_a_heading_is_of_the_heading(names, number, between) -> None:
    """Left behind, it would end the section before: "Cough. 2."."""
    texts = zip(names, ("Cough.", "Clear.", "Normal."), strict=True)
    lines = [f"{number.format(n)}{name}: {text}" for n, (name, text) in enumerate(texts, 1)]
    assert read_sections(between.join(lines)) == CUT


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_heading_is_seen_in_brackets_quotes_and_rules(names, shape) -> None:
    texts = zip(names, ("Cough.", "Clear.", "Normal."), strict=True)
    assert read_sections("\n".join(shape.format(n) + text for n, text in texts)) == CUT


@pytest.mark.parametrize(
    "said",
    ["Compared to view 3.", "Code 786.2", "At 9 a.m.", "Of XXXX. XXXX.", "Grade 2", "Seen on ___."],
)
def test_a_number_of_the_sentence_before_stays(said) -> None:
    for heading in ("FINDINGS", "COMPARISON", "FINDINGS AND IMPRESSION"):
        found = read_sections(f"INDICATION: {said}  {heading}: A.\nIMPRESSION: B.")
        assert found.indication == said


def test_what_looks_like_a_marked_heading_within_the_answer_stays() -> None:
    for text in (
        "1. History of sternotomy - unchanged. 2. Chest: normal.",
        "Comparison of both views - no change. A. Left lung clear.",
        "Clear lungs. Comparison: none was at hand.",
        "Unchanged since view 2. No effusion.",
        "Compared to 3. No change. 2 findings: none new.",
        "There are [finding] 2 nodules; the finding: a nodule.",
        "Small. 2. Comparison: none was at hand.",
    ):
        assert read_sections(f"FINDINGS: {text}\nIMPRESSION: X.").findings == text


# a report; its indication, comparison, findings and impression
WIDTHLESS = "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\xad"
CASES = [
    *(
        (f"INDICATION: Cough{s}FINDINGS: A{s}IMPRESSION: B.", (f"Cough{s}", "", f"A{s}", "B."))
        for s in ".;,)]"
    ),
    (
        "Indication: Cough.Comparison: None.Findings: A.Impression: B.",
        ("Cough.", "None.", "A.", "B."),
    ),
    ("INDICATION:\nCough. Findings: A. Impression: B.", ("Cough.", "", "A.", "B.")),
    *(
        (
            f"IND{s}ICATION: Cough.{s}FINDINGS{s}: A b{s}c.\n{s}IMPRESSION:{s} B.",
            ("Cough.", "", "A bc.", "B."),
        )
        for s in WIDTHLESS
    ),
    ("COMPARISON:___\nFINDINGS:___ is clear.", ("", "", "___ is clear.", "")),
]


@pytest.mark.parametrize(("report", "wanted"), CASES)
def test_a_heading_behind_a_lost_blank_is_seen(report, wanted) -> None:
    indication, comparison, findings, impression = wanted
    cut = ReportSections(findings, impression, "", indication, "", comparison)
    assert read_sections(report) == cut


@pytest.mark.parametrize(
    "sign", [" ", "\t", " \t", "&nbsp;", "\u200b", "\n ", " .", " 1", " [", "="]
)
def test_a_long_run_takes_linear_time(sign) -> None:
    """16,000 blanks took 12 s, and four times the blanks sixteen times as long."""
    began = time.thread_time()
    read_sections(f"INDICATION: no{sign * 200_000}x\nFINDINGS: no{sign * 100_000}x")
    assert time.thread_time() - began < 10


def test_headings_of_two_words_alone_on_their_line_are_headings() -> None:
    """A name in capitals is a heading without its colon; else the answer stands in the prompt."""
    for heading in ("FINDINGS AND IMPRESSION", "FINDINGS & IMPRESSION", "FINDINGS/IMPRESSION"):
        for end in ("\n", "\n\n", "\\.br\\", "~", "\\par "):
            found = read_sections(f"CLINICAL HISTORY{end}Cough.{end}{heading}{end}Clear lungs.")
            wanted = ReportSections("Clear lungs.", "Clear lungs.", indication="Cough.")
            assert found == wanted, (heading, end)


def test_headings_behind_line_ends_of_other_systems_are_seen() -> None:
    for end in ("\\.br\\", "~", "\\par ", "\\par\\pard\\fs20 ", "\\X0D\\\\X0A\\", "\\.sp\\\\H\\"):
        report = f"INDICATION: Cough?{end}FINDINGS: No pneumo-{end}thorax.{end}IMPRESSION: Clear."
        wanted = ReportSections("No pneumothorax.", "Clear.", indication="Cough?")
        assert read_sections(report) == wanted, end
