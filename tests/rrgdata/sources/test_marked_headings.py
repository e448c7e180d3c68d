"""Headings behind a number, a bullet or Markdown's marks are seen, and no others are."""

from __future__ import annotations

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


def test_what_looks_like_a_marked_heading_within_the_answer_stays() -> None:
    for text in (
        "1. History of sternotomy - unchanged. 2. Chest: normal.",
        "Comparison of both views - no change. A. Left lung clear.",
        "Clear lungs. Comparison: none was at hand.",
        "Unchanged since view 2. No effusion.",
    ):
        assert read_sections(f"FINDINGS: {text}\nIMPRESSION: X.").findings == text
