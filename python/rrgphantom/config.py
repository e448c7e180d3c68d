"""Every knob of the phantom, checked when it is built."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass

from rrgclinical.errors import UserError

MAX_PARAPHRASES = 12
MAX_FINDINGS = 13


@dataclass(frozen=True)
class PhantomConfig:
    """What to draw and how to write about it.

    Counts: `train`, `val`, `test` studies. `size` is the side of the square images in pixels.
    `lateral` and `prior` are the probabilities that a study has a lateral view and an earlier
    frontal. `normal` is the share of studies without a finding (devices aside), `prevalence`
    scales how often each finding occurs in the others, `findings` is how many finding types exist
    (the most common first). `uncertain` is the probability that a finding is worded as uncertain.

    Difficulty of the image: `contrast` scales how far every finding stands out (1 is graded from
    obvious to subtle, 0 draws none of them), `noise` scales grain and scatter.
    Difficulty of the text: `paraphrases` is the number of wordings per positive finding,
    `thorough` how firmly a report follows one checklist: 0 as loosely as real reports (what is
    normal is mentioned or not, remarks without a label come in between), 1 always the same
    negatives and no such remarks, so that the report is a function of the case but for wording,
    `templated` how firmly a report is one template with findings filled in: 0 regions in any of
    three orders, what is normal in two or three wordings, singly or together; 1 always in one
    order, in the same words and together. A `terse` report denies nothing: one opening sentence,
    then what is abnormal, in any order, so that a finding can be added at its end.

    Damage, to train reports only: `omit` is the probability that a report leaves out a finding,
    which never happens to the `reported` most common types, `garble` that it states it wrongly
    (other side, negated, or another finding in its place), and `careful` the share of reports
    that are spared both. The reports of val and test are always clean, and labels always tell the
    truth of the case, never the damaged text. Raises UserError for a value out of its range.
    """

    train: int = 2000
    val: int = 200
    test: int = 400
    size: int = 112
    seed: int = 0
    lateral: float = 0.0
    prior: float = 0.0
    normal: float = 1 / 3
    prevalence: float = 1.0
    findings: int = MAX_FINDINGS
    uncertain: float = 0.1
    contrast: float = 1.0
    noise: float = 1.0
    paraphrases: int = MAX_PARAPHRASES
    thorough: float = 0.0
    templated: float = 0.0
    terse: bool = False
    omit: float = 0.0
    garble: float = 0.0
    careful: float = 0.0
    reported: int = 0

    def __post_init__(self) -> None:
        for name in ("train", "val", "test", "seed"):
            self._check(name, getattr(self, name) >= 0, "0 or more")
        for name in ("lateral", "prior", "normal", "uncertain", "omit", "garble", "careful"):
            self._check(name, 0.0 <= getattr(self, name) <= 1.0, "a probability in [0, 1]")
        for name in ("thorough", "templated"):
            self._check(name, 0.0 <= getattr(self, name) <= 1.0, "in [0, 1]")
        self._check("size", 28 <= self.size <= 2048, "28 to 2048 pixels")
        self._check("prevalence", 0.0 < self.prevalence <= 5.0, "in (0, 5]")
        self._check("findings", 1 <= self.findings <= MAX_FINDINGS, f"1 to {MAX_FINDINGS}")
        self._check("reported", 0 <= self.reported <= MAX_FINDINGS, f"0 to {MAX_FINDINGS}")
        self._check("contrast", 0.0 <= self.contrast <= 3.0, "in [0, 3]")
        self._check("noise", 0.0 <= self.noise <= 10.0, "in [0, 10]")
        self._check(
            "paraphrases", 1 <= self.paraphrases <= MAX_PARAPHRASES, f"1 to {MAX_PARAPHRASES}"
        )

    def _check(self, name: str, good: bool, wanted: str) -> None:
        if not good:
            raise UserError(f"phantom: {name}={getattr(self, name)!r}, wanted {wanted}")

    def digest(self) -> str:
        """Names the content: equal configurations of one generator version write equal bytes."""
        fields = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(fields.encode()).hexdigest()
