"""Turn reports of IU X-Ray into studies whose prompts hold noisy evidence.

For each of the 13 findings a score s = d·y + N(0, 1) is drawn, y being what the labeller reads in
the report, and its level, one of five, stands in the prompt as a word of two letters: `aw` is
finding 0 (`Enlarged Cardiomediastinum`) at level 1. The distance d is solved for, so that the
levels, not only the scores, have the AUC asked for. A study's noise depends on its name and the
number of the draw alone: every fold, arm and AUC sees the same. The held-out draw is number 0, the
training draws are 1 to `draws`. A normal study has fewer of them: in reports as they come a finding
at its highest level is still less likely than not, and the likeliest report is a normal one.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from experiments.human_codes import CODED, load_coded_reports
from rrgclinical import build_labeller
from rrgclinical.common import json_reader
from rrgclinical.common.files import atomic_write
from rrgclinical.labels import NO_FINDING, OBSERVATIONS, to_binary
from rrgtrain.errors import UserError

FOLDS = 5
DEVELOPMENT = 0
"""The fold whose held-out studies may be looked at before the judged run."""
VALIDATION = 0.1
"""Share of a fold's training studies by which checkpoints are chosen."""
SEED = 20_261
QUICK_STUDIES = 60
FINDINGS = tuple(i for i in range(len(OBSERVATIONS)) if i != NO_FINDING)
CUTS = (-1.5, -0.5, 0.5, 1.5)
"""Borders of the levels, in standard deviations of the noise, around half the distance."""
LEVELS = len(CUTS) + 1
_FINDING_LETTERS, _LEVEL_LETTERS = "abcdefghijklm", "vwxyz"


@dataclass(frozen=True)
class Evidence:
    """Settings of the draw of prompts; `shuffled` gives training studies another's.

    `draws` are of an abnormal training study, `normal_draws` of one without any of the findings.
    """

    auc: float = 0.85
    draws: int = 6
    normal_draws: int = 1
    shuffled: bool = False


@dataclass(frozen=True)
class Reports:
    """S studies: ids, reports, class ids `truth` int8 [S, 14], human `codes` bool [S, 8]."""

    ids: list[str]
    texts: list[str]
    truth: np.ndarray
    codes: np.ndarray


def read_reports(root: Path, limit: int | None = None) -> Reports:
    """Read the studies of all splits with labels and human codes.

    They are in the order of their names; `limit` keeps the first of them.

    UserError where a file of the data set is missing or a study has no human code.
    """
    path = root / "annotation.json"
    if not path.is_file():
        raise UserError(
            f"no IU X-Ray reports at {root}; give the directory of annotation.json by --data, or "
            "the one above it by RRG_DATA"
        )
    splits = json_reader.read(path, dict)
    studies = sorted((s["id"], s["report"]) for entries in splits.values() for s in entries)
    studies = studies[:limit]
    coded = load_coded_reports(root, "+".join(splits))
    codes = dict(zip(coded.ids, coded.truth, strict=True))
    uncoded = [name for name, _ in studies if patient(name) not in codes]
    if uncoded:
        raise UserError(
            f"{len(uncoded)} of {len(studies)} studies have no human code in "
            f"{root / 'mesh_labels_14.csv'}, {uncoded[0]} the first; give each a row"
        )
    ids, texts = [name for name, _ in studies], [text for _, text in studies]
    truth = build_labeller("rules").label(texts)
    return Reports(ids, texts, truth, np.array([codes[patient(name)] for name in ids]))


def patient(name: str) -> str:
    """Return the part of a study's id that names the patient: `CXR12` of `CXR12_IM-0001`."""
    return name.split("_")[0]


def fold_of(ids: list[str], folds: int = FOLDS) -> np.ndarray:
    """Divide studies into folds of nearly equal size, patients whole: int64 [S]."""
    patients = sorted({patient(name) for name in ids})
    order = np.random.default_rng(SEED).permutation(len(patients))
    place = {patients[index]: rank % folds for rank, index in enumerate(order)}
    return np.array([place[patient(name)] for name in ids])


def shares(distance: float) -> np.ndarray:
    """Probability of each level without and with the finding: float64 [2, LEVELS]."""
    rows = []
    for mean in (0.0, distance):
        below = [NormalDist(mean, 1.0).cdf(distance / 2 + cut) for cut in CUTS]
        rows.append(np.diff([0.0, *below, 1.0]))
    return np.array(rows)


def auc_of(shares: np.ndarray) -> float:
    """Compute the area under the ROC curve of shares [2, L]; ties count half."""
    without, with_finding = shares
    return float(with_finding @ (np.cumsum(without) - without / 2))


def distance_of(auc: float) -> float:
    """Solve for the distance of the means whose levels have this AUC; infinity for 1."""
    if not 0.5 <= auc <= 1.0:
        raise UserError(f"AUC {auc:g}; give one of 0.5 (noise) to 1 (the truth)")
    if auc == 1.0:
        return np.inf
    low, high = 0.0, 40.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if auc_of(shares(middle)) < auc else (low, middle)
    return low


def levels(ids: list[str], present: np.ndarray, auc: float, draw: int) -> np.ndarray:
    """Draw the level of each finding: int64 [S, 13] of `present` bool [S, 13]."""
    distance = distance_of(auc)
    if np.isinf(distance):
        return np.where(present, LEVELS - 1, 0)
    noise = np.stack(
        [
            np.random.default_rng([SEED, zlib.crc32(patient(i).encode()), draw]).standard_normal(
                len(FINDINGS)
            )
            for i in ids
        ]
    )
    return np.searchsorted(distance / 2 + np.array(CUTS), distance * present + noise)


def words_of(row: np.ndarray) -> str:
    """Write a study's levels [13] as the words of its prompt."""
    pairs = zip(_FINDING_LETTERS, row, strict=True)
    return " ".join(letter + _LEVEL_LETTERS[level] for letter, level in pairs)


def fold_studies(reports: Reports, fold: int, evidence: Evidence) -> dict[str, list[Any]]:
    """Draw the entries of R2Gen's annotation for a fold: train, val and test."""
    present = to_binary(reports.truth)[:, FINDINGS].astype(bool)
    test = fold_of(reports.ids) == fold
    rest = np.flatnonzero(~test)
    mixed = np.random.default_rng([SEED, fold]).permutation(rest)
    count = max(1, round(VALIDATION * len(rest)))
    held_out = {"val": np.sort(mixed[:count]), "test": np.flatnonzero(test)}
    train = np.sort(mixed[count:])

    def entries(rows: np.ndarray, source: np.ndarray, draw: int) -> list[dict[str, str]]:
        drawn = levels([reports.ids[i] for i in source], present[source], evidence.auc, draw)
        named = f"_k{draw}" if draw else ""
        return [
            {"id": reports.ids[i] + named, "report": reports.texts[i], "indication": words_of(row)}
            for i, row in zip(rows, drawn, strict=True)
        ]

    studies: dict[str, list[Any]] = {"train": []}
    abnormal = present[train].any(1)
    for draw in range(1, evidence.draws + 1):
        source = train
        if evidence.shuffled:
            source = np.random.default_rng([SEED, fold, draw]).permutation(train)
        drawn = abnormal | (draw <= evidence.normal_draws)
        studies["train"] += entries(train[drawn], source[drawn], draw)
    return studies | {name: entries(rows, rows, 0) for name, rows in held_out.items()}


def write_fold(reports: Reports, fold: int, evidence: Evidence, out: Path) -> dict[str, int]:
    """Write a fold as annotation.json, and codes.json with the human codes; return its sizes."""
    out.mkdir(parents=True, exist_ok=True)
    studies = fold_studies(reports, fold, evidence)
    codes = {
        name: "".join(str(int(code)) for code in row)
        for name, row in zip(reports.ids, reports.codes, strict=True)
    }
    held_out = {entry["id"]: codes[entry["id"]] for entry in studies["test"]}
    atomic_write(out / "codes.json", json.dumps({"columns": list(CODED), "codes": held_out}))
    atomic_write(out / "annotation.json", json.dumps(studies))
    return {name: len(entries) for name, entries in studies.items()}
