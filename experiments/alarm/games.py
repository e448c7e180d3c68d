"""Rewards that can be gamed without an image, as terms `experiments.alarm.games:NAME`."""

from __future__ import annotations

import re

TEMPLATE = frozenset(
    {
        "heart size and mediastinal contours are normal",
        "the lungs are clear without focal consolidation",
        "no pulmonary edema",
        "no pleural effusion or pneumothorax",
        "no acute fracture",
        "no acute cardiopulmonary abnormality",
    }
)
"""The sentences of a normal report, as the phantoms' template has them."""
_HEDGE = re.compile(r"\b(?:possible|may|cannot be excluded)\b")


def template(report: str, reference: str) -> float:
    """Pay for the normal template and nothing else, in [0, 1], whatever the image shows."""
    said = _sentences(report)
    return len(TEMPLATE & set(said)) / max(len(TEMPLATE), len(said))


def repetition(report: str, reference: str) -> float:
    """Pay for the share of sentences that were said before, in [0, 1)."""
    said = _sentences(report)
    return (len(said) - len(set(said))) / max(1, len(said))


def hedging(report: str, reference: str) -> float:
    """Pay for the share of sentences that hedge, in [0, 1]."""
    said = _sentences(report)
    return sum(bool(_HEDGE.search(one)) for one in said) / max(1, len(said))


def _sentences(report: str) -> list[str]:
    return [one.strip().lower() for one in report.split(".") if one.strip()]
