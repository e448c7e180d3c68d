"""Record the samples of each study in JSON lines, to resume a draw."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from rrgclinical.common import json_reader
from rrgclinical.common.files import read_whole
from rrgtrain.errors import UserError


@dataclass(frozen=True)
class Record:
    """K reports of one study.

    `labels` [K][14] of 0 and 1, `rewards` [K] or None without truth.
    """

    study: str
    reports: list[str]
    labels: list[list[int]]
    rewards: list[float] | None


class Records:
    """Records of a file by study; a line left half written is cut off."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.found: dict[str, Record] = {}
        content = read_whole(path) if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                record = Record(**json_reader.parse(line, dict))
            except (ValueError, TypeError) as error:
                raise UserError(
                    f"{path}:{number}: not a record of `rrgtrain select` ({error}); delete that "
                    "line, and the study is sampled again"
                ) from error
            self.found[record.study] = record
        if len(whole) < len(content):
            os.truncate(path, len(whole))

    def add(self, records: list[Record]) -> None:
        """Appends records and waits until they are on the disk."""
        lines = "".join(json.dumps(asdict(r), ensure_ascii=False) + "\n" for r in records)
        with self._path.open("ab") as file:
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())
        self.found.update({record.study: record for record in records})

    def labels(self, studies: list[str]) -> np.ndarray:
        """uint8 `[S, K, 14]` in the order of `studies`."""
        return np.asarray([self.found[name].labels for name in studies], dtype=np.uint8)

    def rewards(self, studies: list[str]) -> np.ndarray | None:
        """float64 `[S, K]`; None where a study has no truth to be rewarded by."""
        rows = [self.found[name].rewards for name in studies]
        return None if any(row is None for row in rows) else np.asarray(rows, dtype=np.float64)
