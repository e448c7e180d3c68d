"""Say what a run of an older version did but did not record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rrgtrain.report.samples import AnySample, EditSample, Sample, WeightSample


def unrecorded(rows: Sequence[Mapping[str, Any]], samples: Sequence[AnySample]) -> list[str]:
    """Write a line for each logged event without a record."""
    keys = {key for row in rows for key in row}
    studies = [s for s in samples if isinstance(s, Sample)]
    lines = []
    if any(key.startswith("edits/") for key in keys) and not _any(samples, EditSample):
        lines.append("Edits were made, but this run kept none of them to be read.")
    if "token_weight/mean" in keys and not _any(samples, WeightSample):
        lines.append("Tokens were weighed, but this run kept no report with its weights.")
    if "reward/facts" in keys and studies and not any(s.facts for s in studies):
        lines.append("FactS was a reward, but this run kept no facts and verdicts of its studies.")
    if "zero_variance" in keys and "zero_reward" not in keys:
        lines.append("How many reports earned nothing was not recorded by this run.")
    return lines


def _any(samples: Sequence[AnySample], kind: type) -> bool:
    return any(isinstance(sample, kind) for sample in samples)
