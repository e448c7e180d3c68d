"""Record the samples of each study in JSON lines, to resume a draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rrgclinical.common import json_reader
from rrgtrain.errors import UserError

BEGIN = b'{"study": '


@dataclass(frozen=True)
class Record:
    """K reports of one study.

    `labels` [K][14] of 0 and 1, `rewards` [K] or None without truth.
    """

    study: str
    reports: list[str]
    labels: list[list[int]]
    rewards: list[float] | None


def parse_record(path: Path, number: int, line: bytes) -> tuple[str, Record]:
    """Read a line of the file at `path`, after its study; UserError for something else."""
    try:
        record = Record(**json_reader.parse(line, dict))
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{path}:{number}: not a record of `rrgtrain select` ({error}); delete that "
            "line, and the study is sampled again"
        ) from error
    return record.study, record


def labels_of(records: Mapping[str, Record], studies: Sequence[str]) -> np.ndarray:
    """uint8 `[S, K, 14]` in the order of `studies`."""
    return np.asarray([records[name].labels for name in studies], dtype=np.uint8)


def rewards_of(records: Mapping[str, Record], studies: Sequence[str]) -> np.ndarray | None:
    """float64 `[S, K]`; None where a study has no truth to be rewarded by."""
    rows = [records[name].rewards for name in studies]
    return None if any(row is None for row in rows) else np.asarray(rows, dtype=np.float64)
