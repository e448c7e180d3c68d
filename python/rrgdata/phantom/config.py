"""Declares every setting of the phantom, checked when it is built."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from pydantic.dataclasses import dataclass

from rrgclinical.common.errors import UserError
from rrgclinical.common.fields import SETTINGS

MAX_PARAPHRASES = 12
MAX_FINDINGS = 13
SHARES = ("lateral", "prior", "normal", "uncertain", "thorough", "templated")
RANGES = {
    **dict.fromkeys((*SHARES, "omit", "garble", "careful"), (0, 1)),
    **{"size": (28, 2048), "contrast": (0, 3), "noise": (0, 10)},
    **{"findings": (1, MAX_FINDINGS), "reported": (0, MAX_FINDINGS)},
    "paraphrases": (1, MAX_PARAPHRASES),
}


@dataclass(frozen=True, config=SETTINGS)
class PhantomConfig:
    """Choose what to draw and how to write about it.

    Damage (`omit`, `garble`) is done to train reports only: the reports of val and test are always
    clean, and labels always tell the truth of the case. Raises UserError for a value out of its
    range.
    """

    train: int = 2000
    """Number of training studies."""
    val: int = 200
    """Number of validation studies."""
    test: int = 400
    """Number of test studies."""
    size: int = 112
    """Side of the square images in pixels, 28 to 2048."""
    seed: int = 0
    """Seed of the studies."""
    lateral: float = 0.0
    """Probability that a study has a lateral view."""
    prior: float = 0.0
    """Probability that a study has an earlier frontal view."""
    normal: float = 1 / 3
    """Share of studies without a finding, devices aside."""
    prevalence: float = 1.0
    """Factor of how often each finding occurs in the other studies, above 0 and up to 5."""
    findings: int = MAX_FINDINGS
    """Number of finding types that exist, the most common first, 1 to 13."""
    uncertain: float = 0.1
    """Probability that a finding is worded as uncertain."""
    contrast: float = 1.0
    """Factor of how far every finding stands out, 0 to 3: 1 is graded from obvious to subtle, 0
    draws none of them."""
    noise: float = 1.0
    """Factor of grain and scatter, 0 to 10."""
    paraphrases: int = MAX_PARAPHRASES
    """Number of wordings per positive finding, 1 to 12."""
    thorough: float = 0.0
    """Firmness with which a report follows one checklist, 0 to 1: at 0 normal findings are
    mentioned or not and remarks without a label come in between, at 1 the negatives are always the
    same and the report is a function of the case but for wording."""
    templated: float = 0.0
    """Firmness with which a report fills in one template, 0 to 1: at 0 regions come in any of three
    orders and normal findings in two or three wordings, singly or together; at 1 always in one
    order, in the same words and together."""
    terse: bool = False
    """Deny no finding by name in a report: one opening sentence, then what is abnormal, in any
    order, so that a finding can be added at its end, or that nothing is."""
    boxes: bool = False
    """Write before the full stop of each finding where it lies on the film, see `data.boxes`."""
    omit: float = 0.0
    """Probability that a train report leaves out a finding."""
    garble: float = 0.0
    """Probability that a train report states a finding wrongly: other side, negated, or another
    finding in its place."""
    careful: float = 0.0
    """Share of train reports that are spared omission and garbling."""
    reported: int = 0
    """Number of most common finding types that are never left out, 0 to 13."""

    def __post_init__(self) -> None:
        for name in ("train", "val", "test", "seed"):
            self._check(name, getattr(self, name) >= 0, "0 or more")
        self._check("prevalence", 0.0 < self.prevalence <= 5.0, "in (0, 5]")
        for name, (low, high) in RANGES.items():
            self._check(name, low <= getattr(self, name) <= high, f"{low} to {high}")

    def _check(self, name: str, good: bool, bound: str) -> None:
        if not good:
            raise UserError(f"phantom: {name}={getattr(self, name)!r}, wanted {bound}")

    def digest(self) -> str:
        """Names the content: equal configurations of one generator version write equal bytes."""
        fields = dataclasses.asdict(self)
        if not self.boxes:  # phantoms are the same as before there were any
            del fields["boxes"]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
