"""`python -m experiments.human_codes`: a labeller against the human codes of IU X-Ray.

Open-i's curators coded every study with MeSH headings; NegBio publishes them as a table of the 14
ChestX-ray14 findings. Eight of those have a CheXpert observation and enough studies to count.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rrgclinical.backends import build_labeller
from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.common.table import aligned
from rrgclinical.labels import OBSERVATIONS, ClassId, check_labels
from rrgclinical.metrics import intervals, rates_by_finding, values

CODED: dict[str, tuple[str, ...]] = {
    "Atelectasis": ("Atelectasis",),
    "Cardiomegaly": ("Cardiomegaly",),
    "Pleural Effusion": ("Effusion",),
    "Pneumonia": ("Pneumonia",),
    "Pneumothorax": ("Pneumothorax",),
    "Consolidation": ("Consolidation",),
    "Edema": ("Edema",),
    "Lung Lesion": ("Mass", "Nodule"),
}
"""Observation -> columns of the human table, any of which makes it positive."""

MENTIONED = (ClassId.POSITIVE, ClassId.UNCERTAIN)
"""Positive as wherever F1 or a reward is computed: a labeller's figure is given so."""
STATED = (ClassId.POSITIVE,)
"""The strict reading, given beside it. On the train split the curators coded 47 of the 166 findings
that the rules call uncertain, so that it agrees better."""


@dataclass(frozen=True)
class CodedReports:
    """R reports (findings, blank line, impression) and their human codes, bool `[R, 8]`."""

    ids: list[str]
    reports: list[str]
    truth: np.ndarray


@dataclass(frozen=True)
class Agreement:
    """Counts per observation of `CODED`, int64 `[8]`, and scores with (low, high) intervals.

    scores: precision, recall, f1, support -> observation, "micro", "macro" -> (value, low, high).
    """

    positives: np.ndarray
    scores: dict[str, dict[str, tuple[float, float, float]]]


def load_coded_reports(directory: str | Path, split: str) -> CodedReports:
    """The studies of `split` that carry human codes.

    Wants `annotation.json` (R2Gen's layout), `sections.jsonl` (id, findings, impression) and
    `mesh_labels_14.csv` in `directory`. "train+val" reads both splits. UserError names a file,
    split or column that is missing.
    """
    root = Path(directory)
    for name in ("annotation.json", "sections.jsonl", "mesh_labels_14.csv"):
        if not (root / name).is_file():
            raise UserError(f"{root / name} not found; wanted a directory that holds it")
    annotation = json_reader.read(root / "annotation.json", dict)
    splits = split.split("+")
    for name in splits:
        if name not in annotation:
            raise UserError(f"no split {name!r} in {root}: choose one of {', '.join(annotation)}")
    sections = {}
    with (root / "sections.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json_reader.parse(line, dict)
            sections[row["id"]] = "\n\n".join(filter(None, (row["findings"], row["impression"])))
    codes = _codes(root / "mesh_labels_14.csv")
    # R2Gen's ids are "<study>_<image>"; the other two files know the study only.
    ids = [entry["id"].split("_")[0] for name in splits for entry in annotation[name]]
    names = [name for name in ids if name in sections and name in codes]
    if not names:
        raise UserError(f"no study of split {split!r} in {root} has sections and human codes")
    return CodedReports(
        ids=names,
        reports=[sections[name] for name in names],
        truth=np.array([codes[name] for name in names]),
    )


def agreement(
    labels: np.ndarray,
    truth: np.ndarray,
    *,
    positive: tuple[ClassId, ...] = STATED,
    resamples: int = 2000,
    seed: int = 0,
) -> Agreement:
    """Precision, recall and F1 of class ids `[R, 14]` against human codes `[R, 8]`.

    Intervals are 95 % as `rrgclinical.metrics.intervals` has them; an undefined ratio is 0.
    """
    columns = [OBSERVATIONS.index(name) for name in CODED]
    said = np.isin(check_labels(labels)[:, columns], positive)
    if said.shape != truth.shape:
        raise ValueError(f"labels of {said.shape} against codes of {truth.shape}; wanted the same")
    rates = rates_by_finding(said, truth, tuple(CODED))
    bounds = intervals(rates, resamples=resamples, seed=seed)
    scores: dict[str, dict[str, tuple[float, float, float]]] = {}
    for key, value in values(rates).items():
        metric, _, name = key.partition("/")
        scores.setdefault(metric, {})[name] = (value, *bounds[key])
    return Agreement(positives=truth.sum(0), scores=scores)


def uncertain_coded(labels: np.ndarray, truth: np.ndarray) -> dict[str, tuple[int, int]]:
    """Count uncertain ids that the codes have, and all of them, by observation.

    labels are class ids `[R, 14]`, truth codes `[R, 8]`. ValueError where their rows differ.
    """
    columns = [OBSERVATIONS.index(name) for name in CODED]
    uncertain = check_labels(labels)[:, columns] == ClassId.UNCERTAIN
    if uncertain.shape != truth.shape:
        raise ValueError(f"labels of {uncertain.shape} against codes of {truth.shape}")
    pairs = zip((uncertain & truth).sum(0).tolist(), uncertain.sum(0).tolist(), strict=True)
    return dict(zip(CODED, pairs, strict=True))


def _codes(path: Path) -> dict[str, list[bool]]:
    with path.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        columns = {"filename", *(name for names in CODED.values() for name in names)}
        lacking = sorted(columns - set(reader.fieldnames or ()))
        if lacking:
            raise UserError(f"{path} lacks the columns {', '.join(lacking)}")
        return {
            row["filename"]: [any(row[name] == "1" for name in names) for names in CODED.values()]
            for row in reader
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; 0 on success, 2 on bad input (one line on standard error)."""
    options = _parser().parse_args(arguments)
    try:
        coded = load_coded_reports(options.data, options.split)
        labeller = build_labeller(options.labeller)
    except UserError as error:
        print(f"rrgclinical: {error}", file=sys.stderr)
        return 2
    labels = labeller.label(coded.reports)
    for title, positive in (("stated or uncertain", MENTIONED), ("stated (strict)", STATED)):
        result = agreement(labels, coded.truth, positive=positive, resamples=options.resamples)
        print(f"\n{options.labeller}, {options.split}: positive = {title}")
        print("\n".join(_table(result)))
    print(f"\ncoded of the uncertain ones: {_uncertain(labels, coded.truth)}")
    print(f"{len(coded.reports)} reports; 95 % bootstrap intervals, {options.resamples} resamples")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.human_codes",
        description="Agreement of a labeller with the human MeSH codes of IU X-Ray.",
    )
    parser.add_argument(
        "--data",
        required=True,
        help="directory with annotation.json, sections.jsonl and mesh_labels_14.csv",
    )
    parser.add_argument(
        "--split", default="val", help="train, val, test or, say, train+val (default: val)"
    )
    parser.add_argument("--labeller", default="rules", help="a registered labeller")
    parser.add_argument("--resamples", type=int, default=2000, help="bootstrap resamples")
    return parser


def _table(result: Agreement) -> list[str]:
    rows = [["observation", "n", "precision", "recall", "F1"]]
    every = int(result.positives.sum())
    counts = [*map(int, result.positives), every, every]
    for name, count in zip(result.scores["f1"], counts, strict=True):
        cells = [_cell(*result.scores[metric][name]) for metric in ("precision", "recall", "f1")]
        rows.append([name, str(count), *cells])
    return aligned(rows)


def _uncertain(labels: np.ndarray, truth: np.ndarray) -> str:
    """Say of each observation how many that are called uncertain have the human code."""
    counts = uncertain_coded(labels, truth)
    return ", ".join(f"{name} {coded} of {all_}" for name, (coded, all_) in counts.items() if all_)


def _cell(value: float, low: float, high: float) -> str:
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    sys.exit(main())
