"""The file that `rrgtrain select` leaves and `data.subset` reads: chosen studies, every score."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import atomic_write


@dataclass(frozen=True)
class Subset:
    """A draw of training studies.

    chosen: ids of the drawn studies, in the order of the data. scores: id -> diversity, empty
    for a random draw. statistics: rows of the table by name.
    """

    method: str
    share: float
    seed: int
    chosen: list[str]
    scores: dict[str, float] = field(default_factory=dict)
    statistics: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Digest the ids of the chosen studies, in whatever order."""
        return hashlib.sha256("\n".join(sorted(self.chosen)).encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Writes the file, whole or not at all."""
        atomic_write(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Subset:
        """Reads the file. UserError where there is none, or where it is something else."""
        path = Path(path).expanduser()
        if path.is_dir():
            path = path / "subset.json"
        try:
            subset = cls(**json_reader.read(path, dict))
        except OSError as error:
            raise UserError(
                f"data.subset: no file {path}; make one with `rrgtrain select`"
            ) from error
        except (ValueError, TypeError) as error:
            raise UserError(
                f"data.subset: {path} is no subset file; wanted what `rrgtrain select` wrote"
            ) from error
        if not isinstance(subset.chosen, list) or not subset.chosen:
            raise UserError(f"data.subset: {path} names no study; draw again with a larger share")
        return subset
