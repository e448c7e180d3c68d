"""Verdicts of a report's facts on each label, and their reward (OraPO)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rrgclinical.labels import NO_FINDING, OBSERVATIONS, SUPPORT_DEVICES, ClassId, to_binary

# The ids of CheXbert, so that verdicts read as labels.
NOT_MENTIONED, ENTAILED, DENIED = int(ClassId.BLANK), int(ClassId.POSITIVE), int(ClassId.NEGATIVE)
VERDICTS: tuple[str, ...] = ("not mentioned", "entailed", "denied")


@dataclass(frozen=True)
class FactReading:
    """One report.

    facts: its atomic statements, in order. verdicts: of the 14 labels, each NOT_MENTIONED,
    ENTAILED or DENIED. evidence: for each label the index of the fact that decides, or None.
    unreadable: why an endpoint's answer could not be read; such a reading has no facts or score.
    """

    facts: tuple[str, ...]
    verdicts: tuple[int, ...]
    evidence: tuple[int | None, ...]
    unreadable: str = ""

    @classmethod
    def of(
        cls,
        facts: Sequence[str],
        verdicts: Sequence[int],
        evidence: Sequence[int | None],
        *,
        well: bool = False,
    ) -> FactReading:
        """A reading from the verdicts on the first 13 labels; No Finding follows from them.

        It is entailed when nothing but Support Devices is and the facts say so: one is denied, or
        `well`, a structure is called normal or a phrase sums up. Else it is not mentioned.
        """
        disease = [v for c, v in enumerate(verdicts) if c != SUPPORT_DEVICES]
        clear = (well or DENIED in verdicts) and ENTAILED not in disease
        last = ENTAILED if clear else NOT_MENTIONED
        return cls(tuple(facts), (*verdicts, last), (*evidence, None))

    @classmethod
    def unread(cls, why: str) -> FactReading:
        """Make the reading of a report whose answer could not be read."""
        nothing = (NOT_MENTIONED,) * len(OBSERVATIONS)
        return cls((), nothing, (None,) * len(OBSERVATIONS), why)

    def as_note(self) -> dict[str, Any]:
        """Facts, and label -> verdict and deciding fact where there is one, for the record."""
        if self.unreadable:
            return {"unreadable": self.unreadable}
        labels = {}
        for name, verdict, fact in zip(OBSERVATIONS, self.verdicts, self.evidence, strict=True):
            if verdict != NOT_MENTIONED:
                quoted = None if fact is None else self.facts[fact]
                labels[name] = {"verdict": VERDICTS[verdict], "fact": quoted}
        return {"facts": list(self.facts), "labels": labels}


class FactReader(Protocol):
    """Reads the facts of reports."""

    def read(self, reports: Sequence[str]) -> list[FactReading]:
        """One reading per report, in order."""
        ...


def fact_scores(
    readings: Sequence[FactReading], truth: np.ndarray, *, beta: float = 2.0
) -> np.ndarray:
    """float64 `[R]`: F_beta of the entailed labels against class ids `truth` [R, 14].

    Truth is positive where positive or uncertain. Entailed and not true is a false positive; true
    and not entailed a false negative; true and denied a false positive besides; denying what is
    not true costs nothing. 0/0 is 0; NaN where an answer could not be read.
    beta above 1 favours recall (OraPO leaves it open).
    """
    positive = to_binary(truth).astype(bool)
    verdicts = np.array([r.verdicts for r in readings], dtype=np.int64).reshape(positive.shape)
    entailed, denied = verdicts == ENTAILED, verdicts == DENIED
    hit = (entailed & positive).sum(1)
    spurious = (entailed & ~positive).sum(1) + (denied & positive).sum(1)
    missed = (~entailed & positive).sum(1)
    squared = beta * beta
    whole = (1 + squared) * hit + squared * missed + spurious
    scores = np.divide((1 + squared) * hit, whole, out=np.zeros(len(hit)), where=hit > 0)
    return np.where([bool(r.unreadable) for r in readings], np.nan, scores)


LABELS: tuple[str, ...] = OBSERVATIONS[:NO_FINDING]
"""The 13 labels that facts are held against; No Finding follows from them."""
