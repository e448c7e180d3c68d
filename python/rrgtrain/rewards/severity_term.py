"""The term `severity`, with the reasons of each value as notes."""

from __future__ import annotations

import numpy as np

from rrgtrain.rewards.batch import RewardBatch


def severity(batch: RewardBatch) -> np.ndarray:
    """Errors in the order of what they would mean for the patient (`rrgclinical.severity`).

    Read by rules whatever `reward.extractor` says; weights are those of
    `reward.options.severity.table`, the packaged ones by default. What was right, missed and
    invented, and what it cost, is kept as notes.
    """
    reader = batch.open("severity")
    references = batch.of_references(
        "severity of references", lambda other: reader.read(other.references, keep=True)
    )
    judged = batch.once(
        "severity read", lambda: reader.judge(batch.reports, batch.references, references)
    )
    batch.notes["severity"] = [one.explain(reader.table) for one in judged]
    return np.array([one.score for one in judged], dtype=np.float64)
