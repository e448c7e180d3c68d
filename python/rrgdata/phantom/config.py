"""Declares every setting of the phantom."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from pydantic import Field
from pydantic.dataclasses import dataclass

from rrgclinical.common.fields import SETTINGS


@dataclass(frozen=True, config=SETTINGS)
class PhantomConfig:
    """Choose what to draw and how to write about it.

    Damage (`omit`, `garble`) is done to train reports only: the reports of val and test are always
    clean, and labels always tell the truth of the case.
    """

    train: int = Field(default=2000, ge=0)
    """Number of training studies."""
    val: int = Field(default=200, ge=0)
    """Number of validation studies."""
    test: int = Field(default=400, ge=0)
    """Number of test studies."""
    size: int = Field(default=112, ge=28, le=2048)
    """Side of the square images in pixels."""
    seed: int = Field(default=0, ge=0)
    """Seed of the studies."""
    lateral: float = Field(default=0.0, ge=0, le=1)
    """Probability that a study has a lateral view."""
    prior: float = Field(default=0.0, ge=0, le=1)
    """Probability that a study has an earlier frontal view."""
    normal: float = Field(default=1 / 3, ge=0, le=1)
    """Share of studies without a finding, devices aside."""
    prevalence: float = Field(default=1.0, gt=0, le=5)
    """Factor of how often each finding occurs in the other studies."""
    findings: int = Field(default=13, ge=1, le=13)
    """Number of finding types that exist, the most common first."""
    uncertain: float = Field(default=0.1, ge=0, le=1)
    """Probability that a finding is worded as uncertain."""
    contrast: float = Field(default=1.0, ge=0, le=3)
    """Factor of how far every finding stands out, 0 to 3: 1 is graded from obvious to subtle, 0
    draws none of them."""
    noise: float = Field(default=1.0, ge=0, le=10)
    """Factor of grain and scatter."""
    paraphrases: int = Field(default=12, ge=1, le=12)
    """Number of wordings per positive finding."""
    thorough: float = Field(default=0.0, ge=0, le=1)
    """Firmness with which a report follows one checklist, 0 to 1: at 0 normal findings are
    mentioned or not and remarks without a label come in between, at 1 the negatives are always the
    same and the report is a function of the case but for wording."""
    templated: float = Field(default=0.0, ge=0, le=1)
    """Firmness with which a report fills in one template, 0 to 1: at 0 regions come in any of three
    orders and normal findings in two or three wordings, singly or together; at 1 always in one
    order, in the same words and together."""
    terse: bool = False
    """Deny no finding by name in a report: one opening sentence, then what is abnormal, in any
    order, so that a finding can be added at its end, or that nothing is."""
    boxes: bool = False
    """Write before the full stop of each finding where it lies on the film, see `data.boxes`."""
    omit: float = Field(default=0.0, ge=0, le=1)
    """Probability that a train report leaves out a finding."""
    garble: float = Field(default=0.0, ge=0, le=1)
    """Probability that a train report states a finding wrongly: other side, negated, or another
    finding in its place."""
    careful: float = Field(default=0.0, ge=0, le=1)
    """Share of train reports that are spared omission and garbling."""
    reported: int = Field(default=0, ge=0, le=13)
    """Number of most common finding types that are never left out."""

    def digest(self) -> str:
        """Names the content: equal configurations of one generator version write equal bytes."""
        fields = dataclasses.asdict(self)
        if not self.boxes:  # phantoms are the same as before there were any
            del fields["boxes"]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
