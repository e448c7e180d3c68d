"""CRIMSON (Baharoon et al., 2026): abnormal findings weighed by significance, by a language model.

arXiv 2603.06183. With w(f) the weight of a finding, e the sum of a match's attribute errors,

    correct = sum over matched reference findings of w * w / (w + e)
    S = (correct - sum of w over false findings) / sum of w over reference findings

and the score is S where that is not negative, else -d / (1 + d) with d = false - correct, in
(-1, 1]. A normal report against a normal reference has 1. Findings that are missing cost what they
would have added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from rrgclinical.chat import Message, PairJudge, Question, json_question

WEIGHTS = {
    "urgent": 1.0,
    "actionable_not_urgent": 0.5,
    "not_actionable_not_urgent": 0.25,
    "benign_expected": 0.0,
}
"""Of a finding, by its clinical significance."""
SEVERITIES = {"significant": 0.5, "negligible": 0.0}
"""Of a match's attribute error."""

_PROMPT = """\
Compare a candidate report of a chest X-ray with the reference report of a radiologist. List the
abnormal findings of each; leave normal findings out. Give each its clinical significance: urgent
(treated at once), actionable_not_urgent (followed up or treated later), not_actionable_not_urgent
(noted, changes nothing), benign_expected (age or known devices explain it). Match findings that are
the same abnormality, also where an attribute differs, and name each difference of a match
(location, severity, descriptor, measurement, certainty, comparison with earlier studies): it is
significant if treatment could change, else negligible. A reference finding without a match is
missing, a candidate finding without one is false.

Reference report:
{reference}

Candidate report:
{candidate}

Answer with this JSON alone:
{"reference_findings": [{"id": "R1", "finding": "...", "clinical_significance": "urgent"}],
 "predicted_findings": [{"id": "P1", "finding": "...", "clinical_significance": "urgent"}],
 "matched_findings": [{"ref_id": "R1", "pred_id": "P1"}],
 "errors": {"false_findings": ["P2"], "missing_findings": ["R2"],
  "attribute_errors": [{"ref_id": "R1", "pred_id": "P1", "severity": "significant"}]}}
"""


class CrimsonJudgement(NamedTuple):
    """One pair: its score, and the weights that it is made of.

    All are NaN where the answer could not be read, and `unreadable` says why.
    """

    score: float
    correct: float
    false: float
    missing: float
    reference: float
    unreadable: str = ""


class Crimson(PairJudge[CrimsonJudgement]):
    """Judges pairs with the model behind an endpoint.

    The published score is that of rajpurkarlab/medgemma-4b-it-crimson with its own prompt, which
    `prompt` takes; with another model or the prompt here it is the same formula, and not CRIMSON's
    published value. No patient context is given.
    """

    name, model, prompt = "crimson", "medgemma-4b-it-crimson", _PROMPT

    def question(self, messages: list[Message]) -> Question[CrimsonJudgement]:
        return json_question(messages, read_judgement)

    def unread(self, why: str) -> CrimsonJudgement:
        nan = math.nan
        return CrimsonJudgement(nan, nan, nan, nan, nan, why)


def read_judgement(answer: Any) -> CrimsonJudgement:
    """Score a model's answer.

    Raises ValueError where a part is missing, a finding is named that is not listed, or a weight
    has no such name; the published reader takes 0.25 or 0 there.
    """
    reference = _weights(answer, "reference_findings")
    predicted = _weights(answer, "predicted_findings")
    errors = _part(answer, "errors", dict)
    false = sum({name: _of(predicted, name) for name in _names(errors, "false_findings")}.values())
    missing = sum(
        {name: _of(reference, name) for name in _names(errors, "missing_findings")}.values()
    )
    costs = dict.fromkeys(reference, 0.0)
    for error in _part(errors, "attribute_errors"):
        name, severity = _part(error, "ref_id", str), _part(error, "severity", str)
        _of(reference, name)
        costs[name] += _of(SEVERITIES, severity)
    matched = dict.fromkeys(_part(m, "ref_id", str) for m in _part(answer, "matched_findings"))
    correct = 0.0
    for name in matched:
        weight = _of(reference, name)
        correct += weight * weight / (weight + costs[name]) if weight else 0.0
    whole = sum(reference.values())
    return CrimsonJudgement(_score(correct, false, missing, whole), correct, false, missing, whole)


def _score(correct: float, false: float, missing: float, whole: float) -> float:
    if not whole and not false and not missing:
        return 1.0
    if whole and correct >= false:
        return (correct - false) / whole
    excess = false - correct
    return -excess / (1.0 + excess)


def _part(value: Any, name: str, kind: type = list) -> Any:
    part = value.get(name) if isinstance(value, dict) else None
    if not isinstance(part, kind):
        raise ValueError(f"{name} is {type(part).__name__}; wanted a {kind.__name__}")
    return part


def _names(errors: Any, name: str) -> list[str]:
    names = _part(errors, name)
    bad = next((one for one in names if not isinstance(one, str)), None)
    if bad is not None:
        raise ValueError(f"{name} holds {type(bad).__name__}; wanted ids")
    return names


def _weights(answer: Any, name: str) -> dict[str, float]:
    return {
        _part(one, "id", str): _of(WEIGHTS, _part(one, "clinical_significance", str))
        for one in _part(answer, name)
    }


def _of(weights: Mapping[str, float], name: str) -> float:
    if name not in weights:
        raise ValueError(f"{name[:40]!r} is none of {', '.join(weights) or 'no findings'}")
    return weights[name]
