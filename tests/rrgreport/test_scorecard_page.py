"""The page of a scorecard: a sentence and six rows first, the notes last."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rrgtrain.cli import main

REFERENCES = {
    "a": "The heart is enlarged. Small left pleural effusion.",
    "b": "No acute disease. The lungs are clear.",
    "c": "Mild pulmonary edema.",
}
REPORTS = {"a": "Large heart.", "b": "No acute disease.", "c": ""}


def page_of(folder: Path, references: dict[str, str]) -> str:
    for name, texts in (("truth", references), ("mine", {k: REPORTS[k] for k in references})):
        (folder / f"{name}.json").write_text(json.dumps(texts))
    words = ["eval", "--predictions", str(folder / "mine.json")]
    words += ["--references", str(folder / "truth.json"), "--out", str(folder / "card")]
    assert main([*words, "eval.bootstrap=20", "eval.meteor=false"]) == 0
    return (folder / "card" / "report.html").read_text()


def test_a_sentence_and_six_rows_come_before_any_note(tmp_path: Path) -> None:
    page = page_of(tmp_path, REFERENCES)
    lead, first, end = (page.index(mark) for mark in ('class="lead"', "<table>", "</table>"))
    later = [page.index(text) for text in ("Large heart.", "All metrics, 3 studies", '"note"')]
    assert [lead, first, end, *later] == sorted([lead, first, end, *later])
    assert re.search(
        r"micro-F1 over 13 findings, 3 studies: 0\.\d{3} .* with mine", page[lead:first]
    )
    rows = re.findall(r'<th scope="row">([^<]*)', page[first:end])
    assert [re.split(r" \(|,", row)[0] for row in rows] == [
        *("micro-F1-13", "micro-F1-14", "macro-F1-14", "entity F1", "BLEU-4", "ROUGE-L")
    ]


def test_no_sentence_speaks_of_findings_that_the_truth_lacks(tmp_path: Path) -> None:
    page = page_of(tmp_path, {"b": REFERENCES["b"]})
    assert 'class="lead"' not in page and "micro-F1-14" in page[: page.index("</table>")]
