"""GREEN's answer read, scored and refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rrgclinical.crimson import read_judgement
from rrgclinical.green import Green, parse_judgement
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings
from tests.rrgclinical.cases import table
from tests.rrgclinical.chat.server import Reply, Server, serving


def answer(significant: list[int], matched: str = "2. Edema; effusion.") -> str:
    """A model's answer with the given counts, one error in each insignificant category."""
    counts = [f"({c}) something: {n}. text" for c, n in zip("abcdef", significant, strict=True)]
    small = [f"({c}) something: 1. text" for c in "abcdef"]
    sections = {
        "Explanation": ["Both agree on (a) many: 7 things."],
        "Clinically Significant Errors": counts,
        "Clinically Insignificant Errors": small,
        "Matched Findings": [matched],
    }
    return "\n\n".join(f"[{name}]:\n" + "\n".join(lines) for name, lines in sections.items())


def options(server: Server, **more: object) -> dict[str, object]:
    return {"endpoint": server.url, "model": "green", "timeout": 5.0, **more}


@pytest.mark.parametrize(
    ("significant", "matched", "score"),
    [
        ([0] * 6, "2. Edema; effusion.", 1.0),
        ([1, 0, 2, 0, 0, 0], "2. Edema; effusion.", 0.4),
        ([1, 0, 0, 0, 0, 0], "0. None.", 0.0),
        ([0] * 6, "0", 0.0),
    ],
)
def test_score(significant: list[int], matched: str, score: float) -> None:
    found = parse_judgement(answer(significant, matched))
    assert (found.score, found.errors) == (pytest.approx(score), tuple(significant))


def sections(significant: str, matched: str) -> str:
    return (
        f"[Clinically Significant Errors]:\n{significant}\n\n"
        "[Clinically Insignificant Errors]:\n(c) A place: 3. Many.\n\n"
        f"[Matched Findings]:\n{matched}"
    )


@pytest.mark.parametrize(
    ("significant", "errors"),
    [
        # what is left out counts 0, as published
        ("No clinically significant errors.", [0] * 6),
        ("None.", [0] * 6),
        ("None of (a) to (f): 0.", [0] * 6),
        # as GREEN-RadLlama2-7b often answers, in any order
        ("(d) Severity: 1. Small.\n(b) Missing: 2. Edema; a nodule.", [0, 2, 0, 1, 0, 0]),
        ("(a) False report: none.\n(f) Omitted: 1. Change.", [0, 0, 0, 0, 0, 1]),
        ("(2) Missing: 2. Edema (1); a nodule.\n(6) Omitted: 1. Change.", [0, 2, 0, 0, 0, 1]),
        # the published parser reads 0 for one of these, and a wrong report scores too well
        ("(a) False: 2 things\n(c) Place: 1, the base", [2, 0, 1, 0, 0, 0]),
        ("(a) False:2. Mass.\n(c) Place:  1. Base.", [2, 0, 1, 0, 0, 0]),
        ("(a) False: 2. Mass.\n\n(c) Place: 1. Base.", [2, 0, 1, 0, 0, 0]),
        ("Nodule and base:\n(a) False: 2. Mass.\n(c) Place: 1. Base.", [2, 0, 1, 0, 0, 0]),
    ],
)
@pytest.mark.parametrize("matched", ["2. Heart; lungs.", "3 findings: heart, lungs, bones"])
def test_each_category_is_counted(significant: str, matched: str, errors: list[int]) -> None:
    found = parse_judgement(sections(significant, matched))
    assert (found.matched, list(found.errors)) == (int(matched[0]), errors)


@pytest.mark.parametrize(("line", "errors"), table("counts of GREEN"))
@pytest.mark.parametrize("letter", ["b", "f"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_count_stands_behind_the_colon_of_its_category(
    line: str, errors: int, letter: str, end: str
) -> None:
    text = sections(f"({letter}) Some name {line.format(':')}", "2. Heart; lungs.")
    found = parse_judgement(text.replace("\n", end))
    assert found.errors == tuple(errors * (name == letter) for name in "abcdef")


def test_headings_may_be_bold_and_matches_a_list_or_a_word() -> None:
    bold = sections("(b) Missing: 1. Edema.", "2. Heart; lungs.")
    for mark in ("**{}**", "__{}__"):
        marked = re.sub(r"\[.*?\]:", lambda heading, mark=mark: mark.format(heading[0]), bold)
        assert parse_judgement(marked)[:2] == (2, (0, 1, 0, 0, 0, 0))
    assert parse_judgement(re.sub(r"\[(.*?)\]:", r"### \1", bold)).matched == 2
    for matched in ("1. heart\n2. lungs\n3. no effusion", "three findings", "3) heart, lungs"):
        assert parse_judgement(sections("None.", matched)).matched == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"the section \[Clinically Significant Errors\] is missing"),
        (sections("", "1. Heart."), r"Significant Errors\] names no category"),
        (sections("Two: edema, nodule.", "1. Heart."), r"Significant Errors\] names no category"),
        (sections("Nodules: 2.", "1. Heart."), r"Significant Errors\] names no category"),
        (sections("None.", "Normal heart; clear lungs."), "does not begin with a number"),
        (
            sections("(a) False: 1.5 cm nodule; 2 cm mass", "1. Heart."),
            "the size '1.5' stands where",
        ),
        (sections("(a) False: 2 cm mass", "1. Heart."), "the size '2 cm' stands where"),
        (answer([0] * 6, "Edema."), "does not begin with a number"),
        (answer([0] * 6).partition("[Matched")[0], r"the section \[Matched Findings\] is missing"),
    ],
)
def test_another_form_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_judgement(text)


def test_pairs_are_judged_once_and_braces_survive(tmp_path: Path) -> None:
    template = tmp_path / "prompt.txt"
    template.write_text("R={reference} C={candidate}")
    reports, references = ["{reference}", "b", "{reference}"], ["x {candidate}", "y"] * 2
    with serving(lambda *_: Reply(answer([1] + [0] * 5))) as server:
        judge = Green.build(options(server, prompt=str(template)), cache=tmp_path)
        assert judge.score(reports, references[:3]).tolist() == pytest.approx([2 / 3] * 3)
        assert sorted(body["messages"][0]["content"] for body in server.asked[1:]) == [
            "R=x {candidate} C={reference}",
            "R=y C=b",
        ]
        assert "response_format" not in server.asked[0]
        assert server.asked[0]["max_tokens"] == 1024  # of the 4,096 of GREEN's context
        Green.build(options(server, prompt=str(template)), cache=tmp_path).score(["b"], ["y"])
        assert len(server.asked) == 4  # a check each, and two pairs


# CRIMSON's judgement read, scored by its formula and refused.
LEVELS = {
    "u": "urgent",
    "a": "actionable_not_urgent",
    "n": "not_actionable_not_urgent",
    "b": "benign_expected",
}


def judgement(
    reference: str = "",
    predicted: str = "",
    matched: str = "",
    missing: str = "",
    false: str = "",
    **errors: str,
) -> dict[str, Any]:
    """Findings by a letter of significance each; the others by their places, from 1."""

    def findings(kind: str, letters: str) -> list[dict[str, str]]:
        return [
            {"id": f"{kind}{k}", "finding": "x", "clinical_significance": LEVELS[letter]}
            for k, letter in enumerate(letters, 1)
        ]

    return {
        "reference_findings": findings("R", reference),
        "predicted_findings": findings("P", predicted),
        "matched_findings": [{"ref_id": f"R{k}", "pred_id": "P1"} for k in matched],
        "errors": {
            "false_findings": [f"P{k}" for k in false],
            "missing_findings": [f"R{k}" for k in missing],
            "attribute_errors": [
                {"ref_id": name, "pred_id": "P1", "severity": severity}
                for name, severities in errors.items()
                for severity in severities.split()
            ],
        },
    }


def test_scores_are_the_formula_by_hand() -> None:
    cases = [
        (judgement(), 1.0),  # both are normal
        (judgement("ua", "ua", "12"), 1.0),
        (judgement("ua", "u", "1", missing="2"), 1 / 1.5),
        (judgement("ua", "ua", "112"), 1.0),  # one finding matched by two counts once
        (judgement("u", "u", "1", R1="significant"), 1 / 1.5),
        (judgement("a", "a", "1", R1="significant significant"), 0.25 / 1.5 / 0.5),
        (judgement("u", "u", "1", R1="negligible"), 1.0),
        (judgement("u", "ua", "1", false="2"), 0.5),
        (judgement("a", "u", missing="1", false="1"), -0.5),
        (judgement("a", "uuu", "1", false="23"), -1.5 / 2.5),
        (judgement("", "an", false="12"), -0.75 / 1.75),
        (judgement("b", "b", "1"), 1.0),  # nothing weighs anything
        (judgement("bu", "b", "1", missing="2"), 0.0),
    ]
    for case, score in cases:
        assert read_judgement(case).score == pytest.approx(score), case


def test_answers_that_cannot_be_scored_are_refused() -> None:
    whole = judgement("u", "u", "1")
    cases = [
        ([], "reference_findings is NoneType"),
        ({**whole, "errors": None}, "errors is NoneType"),
        ({**whole, "matched_findings": [{"ref_id": "R9"}]}, "'R9' is none of R1"),
        ({**whole, "matched_findings": ["R1"]}, "ref_id is NoneType"),
        (judgement("u", "u", false="3"), "'P3' is none of P1"),
        (judgement("u", "u", missing="2"), "'R2' is none of R1"),
        (judgement("u", "u", "1", R1="grave"), "'grave' is none of significant, negligible"),
        (
            {**whole, "reference_findings": [{"id": "R1", "clinical_significance": "dire"}]},
            "'dire' is none of urgent",
        ),
        (
            {**whole, "errors": {**whole["errors"], "false_findings": [{}]}},
            "holds dict; wanted ids",
        ),
    ]
    for case, line in cases:
        with pytest.raises(ValueError, match=line):
            read_judgement(case)


def test_the_term_asks_its_endpoint_once_a_pair() -> None:
    def reply(_: int, body: dict[str, Any]) -> Reply:
        text = body["messages"][0]["content"]
        good = "Edema {x}." in text.rsplit("Candidate report:", 1)[-1]
        return Reply(
            json.dumps(
                judgement("u", "u" if good else "", "1" if good else "", "" if good else "1")
            )
        )

    with serving(reply) as server:
        options = {"endpoint": server.url, "model": "m", "timeout": 5.0}
        settings = RewardSettings(terms={"crimson": 1.0}, options={"crimson": options})
        scores = RewardService(settings)(["Edema {x}.", "Clear.", "Clear."], ["Edema."] * 3)
        assert scores["crimson"].tolist() == [1.0, 0.0, 0.0]
        assert scores.notes["crimson"][1]["missing"] == 1.0
    with pytest.raises(UserError, match=r"set reward\.options\.crimson\.endpoint"):
        RewardService(RewardSettings(terms={"crimson": 1.0}))(["a"], ["b"])
