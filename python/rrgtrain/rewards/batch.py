"""What reward terms read: labels and entities of reports and references, found once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rrgtrain.clinical import Entities, Extractor, Labeller
from rrgtrain.data.study import Study
from rrgtrain.errors import UserError


@dataclass(frozen=True)
class RewardBatch:
    """R reports beside the studies they describe.

    Everything derived is computed at most once per batch, however many terms read it.
    """

    reports: Sequence[str]
    studies: Sequence[Study]
    labeller: Labeller
    extractor: Extractor
    against: str
    margin: float
    neg_weight: float

    @cached_property
    def references(self) -> list[str]:
        missing = next((s.id for s in self.studies if s.report is None), None)
        if missing is not None:
            raise UserError(
                f"study {missing} has no reference report, but a reward term compares with one; "
                "use reward.against=labels and the terms mccs or label_f1"
            )
        return [s.report or "" for s in self.studies]

    @cached_property
    def report_labels(self) -> np.ndarray:
        """[R, 14] class ids of the reports."""
        return self.labeller.label(self.reports)

    @cached_property
    def reference_labels(self) -> np.ndarray:
        """[R, 14] class ids of the references, or the studies' own labels."""
        if self.against == "report":
            return self.labeller.label(self.references)
        missing = next((s.id for s in self.studies if s.labels is None), None)
        if missing is not None:
            raise UserError(
                f"study {missing} has no labels, but reward.against=labels compares with them; "
                "use reward.against=report"
            )
        return np.asarray([s.labels for s in self.studies], dtype=np.int8)

    @cached_property
    def report_entities(self) -> Entities:
        return self.extractor.extract(self.reports)

    @cached_property
    def reference_entities(self) -> Entities:
        return self.extractor.extract(self.references)
