"""Watch axes of validation reports beside the reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rrgclinical.severity import AXIS, SPAN, Counts, Severity, Validated, alarm, axes, rate_of
from rrgtrain.train.evaluate import Evaluation


class AxesWatch:
    """Add axes to the metrics of each evaluation, and an alarm.

    Rows get `axis/NAME`, and beside a rising reward `alarm/NAME`, by how much the axis changed;
    `alarm/reward` is the reward's gain. Studies without a reference have no axes.
    """

    def __init__(
        self,
        scored_text: Callable[[Sequence[str]], list[str]],
        reader: Severity,
    ) -> None:
        """scored_text: cuts the report from a completion. reader: has the table."""
        self._scored_text, self._reader = scored_text, reader
        self._past: list[Validated] = []

    def __call__(self, evaluation: Evaluation) -> dict[str, float]:
        """The metrics of an evaluation; the latest `SPAN` are kept."""
        rows = evaluation.metrics()
        references = [study.report for study in evaluation.studies]
        truth = [text for text in references if text is not None]
        if not truth or len(truth) < len(references):
            return rows
        counts = self._counts(self._scored_text(evaluation.reports), truth)
        rates = {f"{AXIS}{name}": rate for name, of in counts.items() if (rate := rate_of(of)) >= 0}
        ids = tuple(study.id for study in evaluation.studies)
        latest = Validated(ids, evaluation.rewards["total"], counts)
        self._past = [*self._past[1 - SPAN :], latest]
        return {**rows, **rates, **alarm(self._past)}

    def _counts(self, reports: Sequence[str], references: Sequence[str]) -> Counts:
        reader = self._reader
        truth = reader.read(references, keep=True)
        judged = reader.judge(reports, references, truth)
        return axes(judged, reader.read(reports), truth, reader.table)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "past": [
                {
                    "studies": list(one.studies),
                    "reward": torch.as_tensor(one.reward),
                    "counts": {n: torch.as_tensor(np.stack(of)) for n, of in one.counts.items()},
                }
                for one in self._past
            ]
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Puts back what `state_dict` gave."""
        self._past = [
            Validated(
                tuple(one["studies"]),
                one["reward"].numpy(),
                {name: tuple(of.numpy()) for name, of in one["counts"].items()},
            )
            for one in saved["past"]
        ]
