"""CRIMSON's answer read, scored by its formula and refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rrgclinical.crimson import read_judgement
from rrgtrain.errors import RewardError, UserError
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings
from tests.rrgclinical.chat.server import Reply, serving

LEVELS = {
    "u": "urgent",
    "a": "actionable_not_urgent",
    "n": "not_actionable_not_urgent",
    "b": "benign_expected",
}


def answer(
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
        (answer(), 1.0),  # both are normal
        (answer("ua", "ua", "12"), 1.0),
        (answer("ua", "u", "1", missing="2"), 1 / 1.5),
        (answer("ua", "ua", "112"), 1.0),  # one finding matched by two counts once
        (answer("u", "u", "1", R1="significant"), 1 / 1.5),
        (answer("a", "a", "1", R1="significant significant"), 0.25 / 1.5 / 0.5),
        (answer("u", "u", "1", R1="negligible"), 1.0),
        (answer("u", "ua", "1", false="2"), 0.5),
        (answer("a", "u", missing="1", false="1"), -0.5),
        (answer("a", "uuu", "1", false="23"), -1.5 / 2.5),
        (answer("", "an", false="12"), -0.75 / 1.75),
        (answer("b", "b", "1"), 1.0),  # nothing weighs anything
        (answer("bu", "b", "1", missing="2"), 0.0),
    ]
    for case, score in cases:
        assert read_judgement(case).score == pytest.approx(score), case


def test_answers_that_cannot_be_scored_are_refused() -> None:
    whole = answer("u", "u", "1")
    cases = [
        ([], "reference_findings is NoneType"),
        ({**whole, "errors": None}, "errors is NoneType"),
        ({**whole, "matched_findings": [{"ref_id": "R9"}]}, "'R9' is none of R1"),
        ({**whole, "matched_findings": ["R1"]}, "ref_id is NoneType"),
        (answer("u", "u", false="3"), "'P3' is none of P1"),
        (answer("u", "u", missing="2"), "'R2' is none of R1"),
        (answer("u", "u", "1", R1="grave"), "'grave' is none of significant, negligible"),
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


def test_the_term_asks_its_endpoint_once_a_pair(tmp_path) -> None:
    def reply(_: int, body: dict[str, Any]) -> Reply:
        text = body["messages"][0]["content"]
        good = "Edema {x}." in text.rsplit("Candidate report:", 1)[-1]
        return Reply(
            json.dumps(answer("u", "u" if good else "", "1" if good else "", "" if good else "1"))
        )

    with serving(reply) as server:
        options = {"endpoint": server.url, "model": "m", "timeout": 5.0}
        settings = RewardSettings(terms={"crimson": 1.0}, options={"crimson": options})
        scores = RewardService(settings)(["Edema {x}.", "Clear.", "Clear."], ["Edema."] * 3)
        assert scores["crimson"].tolist() == [1.0, 0.0, 0.0]
        assert scores.notes["crimson"][1]["missing"] == 1.0
        prompt = tmp_path / "prompt.txt"
        prompt.write_text("{reference}")
        bad = RewardSettings(
            terms={"crimson": 1.0}, options={"crimson": {**options, "prompt": str(prompt)}}
        )
        with pytest.raises(RewardError, match=r"crimson: prompt .* holds \{candidate\} 0 times"):
            RewardService(bad)(["a"], ["b"])
    with pytest.raises(UserError, match=r"set reward\.options\.crimson\.endpoint"):
        RewardService(RewardSettings(terms={"crimson": 1.0}))(["a"], ["b"])
