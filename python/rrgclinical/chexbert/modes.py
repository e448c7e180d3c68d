"""f1chexbert's `classification` mode; its `rrg` mode is `rrgclinical.to_binary`."""

from __future__ import annotations

import numpy as np

from rrgclinical.labels import ClassId, check_labels

_CELL: dict[int, int | str] = {
    ClassId.BLANK: "",
    ClassId.POSITIVE: 1,
    ClassId.NEGATIVE: 0,
    ClassId.UNCERTAIN: -1,
}


def to_classification(labels: np.ndarray) -> list[list[int | str]]:
    """Class ids `[R, 14]` as CheXpert's csv writes them: blank "", positive 1, negative 0,
    uncertain -1. R lists of 14. Raises as `to_binary`.
    """
    return [[_CELL[cell] for cell in row] for row in check_labels(labels).tolist()]
