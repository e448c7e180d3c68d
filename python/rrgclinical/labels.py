"""The 14 observations, their four class ids, and what each consumer makes of them.

The order and the ids are those of CheXbert (Smit et al., 2020), so that label matrices of any
labeller are interchangeable: int8 `[R, 14]`, one row per report.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

OBSERVATIONS: tuple[str, ...] = (
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
    "Support Devices",
    "No Finding",
)
NO_FINDING = OBSERVATIONS.index("No Finding")
SUPPORT_DEVICES = OBSERVATIONS.index("Support Devices")

CHEXPERT_5: tuple[int, ...] = tuple(
    OBSERVATIONS.index(name)
    for name in ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
)
"""Columns of the five observations of the CheXpert competition (Irvin et al., 2019): 1 4 5 7 9."""


class ClassId(IntEnum):
    """Class of an observation in a report; No Finding is BLANK or POSITIVE."""

    BLANK = 0
    POSITIVE = 1
    NEGATIVE = 2
    UNCERTAIN = 3


_BINARY = np.array([0, 1, 0, 1], dtype=np.int8)
_SIGN = np.array([0, 1, -1, 1], dtype=np.int8)
CELLS: tuple[int | str, ...] = ("", 1, 0, -1)
"""What CheXpert's csv writes for each class id."""


_OF_CELL = {"": 0, "1": 1, "1.0": 1, "0": 2, "0.0": 2, "-1": 3, "-1.0": 3}


def class_of_cell(cell: object) -> int | None:
    """Read a cell as `CELLS` has them, a float's too; None for anything else."""
    return _OF_CELL.get("" if cell is None else str(cell).strip())


def check_labels(labels: np.ndarray, name: str = "labels") -> np.ndarray:
    """`labels` as an int8 `[R, 14]` array of class ids.

    Raises TypeError for a dtype that is not integer, ValueError for another shape or id.
    """
    array = np.asarray(labels)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {array.dtype}; wanted integer class ids 0..3")
    if array.ndim != 2 or array.shape[1] != len(OBSERVATIONS):
        raise ValueError(f"{name} has shape {array.shape}; wanted [reports, {len(OBSERVATIONS)}]")
    if array.size and (array.min() < 0 or array.max() > 3):
        raise ValueError(
            f"{name} holds ids {int(array.min())}..{int(array.max())}; wanted class ids 0..3"
        )
    return array.astype(np.int8, copy=False)


def to_binary(labels: np.ndarray) -> np.ndarray:
    """Positive or uncertain is 1, negative or blank 0: f1chexbert's `rrg` mode. int8 `[R, 14]`."""
    return _BINARY[check_labels(labels)]


def to_classification(labels: np.ndarray) -> list[list[int | str]]:
    """Write class ids `[R, 14]` as `CELLS`, f1chexbert's `classification` mode; R lists of 14."""
    return [[CELLS[cell] for cell in row] for row in check_labels(labels).tolist()]


def to_signs(labels: np.ndarray) -> np.ndarray:
    """Blank 0, positive and uncertain +1, negative -1, without No Finding: int8 `[R, 13]`.

    The vectors z of MCCS (MRG-R1).
    """
    return _SIGN[check_labels(labels)[:, :NO_FINDING]]


def chexpert_five(labels: np.ndarray) -> np.ndarray:
    """The columns of `CHEXPERT_5`: int8 `[R, 5]`."""
    return check_labels(labels)[:, list(CHEXPERT_5)]
