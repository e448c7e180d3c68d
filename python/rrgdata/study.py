"""A study as every part of the trainer sees it, whatever dataset it came from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rrgclinical.common.arguments import listed

_VIEWS = {
    **dict.fromkeys(("FRONTAL", "PA", "AP", "POSTERO ANTERIOR", "ANTERO POSTERIOR"), "frontal"),
    **dict.fromkeys(("LATERAL", "LAT", "LL", "RL", "LEFT LATERAL", "RIGHT LATERAL"), "lateral"),
}
"""Views of PS3.3 C.8.1.1 and those in use; decubitus and obliques have none."""


def view_of_name(name: str) -> str:
    """Translate a view's name or code into "frontal" or "lateral", "" where it is neither."""
    return _VIEWS.get(re.sub(r"[\s_-]+", " ", name).strip().upper(), "")


@dataclass(frozen=True, slots=True)
class ImageRef:
    """One image of a study; `prior` marks an earlier examination of the same patient.

    `view` is "frontal" or "lateral", or "" where the data does not say.
    """

    path: Path
    view: str
    prior: bool = False


@dataclass(frozen=True, slots=True)
class Study:
    """One report with its images.

    `labels` are 14 class ids (0 blank, 1 positive, 2 negative, 3 uncertain) in CheXbert's column
    order, or None where the dataset has none. `report` is None where only labels are known.
    `expert` tells that the labels are a human reader's, so that they may be the truth. `patient`
    is who was examined, "" where the dataset does not say.
    """

    id: str
    split: str
    report: str | None
    labels: tuple[int, ...] | None
    images: tuple[ImageRef, ...]
    indication: str = ""
    technique: str = ""
    comparison: str = ""
    expert: bool = False
    patient: str = ""


def check_studies(studies: Sequence[Study]) -> list[Study]:
    """List studies; TypeError names the first that is none."""
    members = listed(studies, "studies", "studies")
    for index, study in enumerate(members):
        if not isinstance(study, Study):
            raise TypeError(f"studies[{index}] is {type(study).__name__}; wanted a Study")
    return members


def studies_of(references: Sequence[Study | str]) -> list[Study]:
    """List studies, and make one of each report; TypeError for anything else."""
    studies = []
    for index, reference in enumerate(listed(references, "references", "studies or reports")):
        if isinstance(reference, str):
            reference = Study(id=str(index), split="", report=reference, labels=None, images=())
        if not isinstance(reference, Study):
            raise TypeError(
                f"references[{index}] is {type(reference).__name__}; wanted a Study or its report"
            )
        studies.append(reference)
    return studies
