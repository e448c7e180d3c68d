"""Select training studies: a listed subset, agreement of report and labels, balance."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from rrgclinical import Labeller
from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import atomic_write
from rrgclinical.labels import to_binary
from rrgdata.settings import DataSettings
from rrgdata.study import Study


@dataclass(frozen=True)
class Subset:
    """A draw of training studies, the file that `rrgtrain select` leaves and `data.subset` reads.

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


def training_subset(
    data: DataSettings, seed: int, train: list[Study], labeller: Labeller
) -> list[Study]:
    """Those of `train` in `data.subset`, of these what agrees, of these `data.balanced` evenly.

    Labels to balance are the studies' own, or what `labeller` reads in the reports; agreement needs
    both. Where some studies have a report, those without one are in no balanced draw. Raises
    UserError for a subset of other data, a number that cannot be drawn, or studies that lack what
    is compared.
    """
    if data.subset is not None:
        train = _listed(Subset.load(data.subset), train, data.subset)
    if data.agreeing:
        train = _report_matches_labels(train, labeller)
    if data.balanced is not None:
        train = _with_findings(train)
        if data.balanced > len(train):
            raise UserError(
                f"data.balanced={data.balanced}, but there are {len(train)} training studies; "
                "give a number from 1 to that, or null for all"
            )
        positive = to_binary(labels_of(train, labeller)).astype(bool)
        train = [train[i] for i in balanced(positive, data.balanced, seed)]
    return train


def labels_of(studies: list[Study], labeller: Labeller) -> np.ndarray:
    """Read class ids [S, 14]: the studies' own where all have them, else their reports'."""
    if all(study.labels is not None for study in studies):
        return np.asarray([study.labels for study in studies], dtype=np.int8).reshape(-1, 14)
    bare = next((study.id for study in studies if study.report is None), None)
    if bare is not None:
        raise UserError(
            f"data.balanced needs labels, but study {bare} has neither labels nor a report; "
            "use data.balanced=null"
        )
    return labeller.label([study.report or "" for study in studies])


def _with_findings(train: list[Study]) -> list[Study]:
    """The studies with a report, where there are any; a warning counts the others (OraPO, 4.1)."""
    reported = [study for study in train if (study.report or "").strip()]
    if not reported or len(reported) == len(train):
        return train
    warnings.warn(
        f"data.balanced leaves out {len(train) - len(reported)} of {len(train)} training studies, "
        "which have no report",
        stacklevel=2,
    )
    return reported


def _listed(subset: Subset, train: list[Study], path: str) -> list[Study]:
    there = {study.id for study in train}
    foreign = [name for name in subset.chosen if name not in there]
    if foreign:
        raise UserError(
            f"data.subset={path} names study {foreign[0]}, which is not among the {len(train)} "
            "training studies of this data; draw a subset of these with `rrgtrain select`"
        )
    chosen = set(subset.chosen)
    return [study for study in train if study.id in chosen]


def _report_matches_labels(train: list[Study], labeller: Labeller) -> list[Study]:
    bare = next((s.id for s in train if s.labels is None or s.report is None), None)
    if bare is not None:
        raise UserError(
            f"data.agreeing compares reports with labels, but study {bare} lacks one of them; "
            "use data.agreeing=false"
        )
    stated = to_binary(labeller.label([study.report or "" for study in train])).astype(bool)
    true = to_binary(np.asarray([study.labels for study in train], dtype=np.int8)).astype(bool)
    agree = (stated == true).all(axis=1)
    if not agree.any():
        raise UserError(
            f"data.agreeing: none of {len(train)} reports states the labels of its study; look at "
            "the labels, or use data.agreeing=false"
        )
    return [study for study, same in zip(train, agree, strict=True) if same]


def balanced(positive: np.ndarray, count: int, seed: int) -> list[int]:
    """Draw `count` rows of `positive` whose columns are as near to equal as possible.

    Each draw (OraPO, section 4.1) takes a study with the label that the studies drawn so far have
    least (ties to the lower column), at random among those that are left; studies without any
    label come last.

    Args:
        positive: bool `[S, C]`, which labels each study has.
        count: how many to draw, at most S.
        seed: of the draws.

    Returns:
        Indices in ascending order.
    """
    studies, columns = positive.shape
    order = np.random.default_rng(seed).permutation(studies)
    queues = [[int(i) for i in order[::-1] if positive[i, c]] for c in range(columns)]
    rest = [int(i) for i in order[::-1] if not positive[i].any()]
    taken = np.zeros(studies, dtype=bool)
    have = np.zeros(columns, dtype=np.int64)
    chosen: list[int] = []
    while len(chosen) < count:
        for queue in queues:
            while queue and taken[queue[-1]]:
                queue.pop()
        open_columns = [c for c in range(columns) if queues[c]]
        if open_columns:
            study = queues[min(open_columns, key=lambda c: (have[c], c))].pop()
        else:
            study = rest.pop()
        taken[study] = True
        have += positive[study]
        chosen.append(study)
    return sorted(chosen)
