"""Finds MIMIC-CXR's lists, reports and images beneath the directory of a download."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path

from rrgclinical.common.errors import UserError

SUFFIXES = (".jpg", ".dcm")
# Where the projects lie beneath a root, the nearest first.
PROJECTS = (
    "mimic-cxr*",
    "2*",
    "mimic-cxr*/2*",
    "files/mimic-cxr*/2*",
    "physionet.org/files/mimic-cxr*/2*",
)
PROBED = 20
"""Patients of a group that are looked at for the kinds of files in a tree."""


class MimicFiles:
    """The places of MIMIC-CXR's files.

    A tree is a directory with the folders p10 to p19 of ten groups of patients.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.projects = _projects(root)

    def list_of(self, kind: str) -> Path:
        """Find the list "split" or "metadata"; UserError where there is none."""
        path = self.optional_list(kind)
        if path is None:
            above = "; it is the directory above this one" if _groups(self.root) else ""
            raise UserError(
                f"{self.root}: no mimic-cxr-2.0.0-{kind}.csv or .csv.gz; wanted the directory of "
                f"MIMIC-CXR-JPG, as physionet.org/files/mimic-cxr-jpg/2.1.0{above}"
            )
        return path

    def optional_list(self, kind: str) -> Path | None:
        """Find a list that need not be there, "chexpert" or "test-set-labeled"."""
        for project in self.projects:
            for suffix in (".csv", ".csv.gz"):
                there = sorted(project.glob(f"mimic-cxr-2*-{kind}{suffix}"))
                if there:
                    return there[-1]
        return None

    def images(self) -> tuple[Path, str]:
        """Find the tree of the images, and their suffix: JPEG, or else DICOM."""
        kinds = _kinds_of_trees(self.projects)
        for suffix in SUFFIXES:
            for tree, of_tree in kinds.items():
                if suffix in of_tree:
                    return tree, suffix
        raise UserError(
            f"{self.root}: no images files/p10/p10000032/s50414267/*.jpg or *.dcm; name the "
            "directory of MIMIC-CXR-JPG, or set data.images=none"
        )

    def reports(self, apart: str | None) -> Path:
        """Find the tree of the reports, beneath the directory `apart` where that is given."""
        projects = self.projects
        if apart is not None:
            place = Path(apart).expanduser()
            if not place.is_dir():
                raise UserError(f"data.reports={place} is no directory; wanted that of the reports")
            projects = _projects(place)
        for tree, kinds in _kinds_of_trees(projects).items():
            if ".txt" in kinds:
                return tree
        raise UserError(
            f"{apart or self.root}: no reports files/p10/p10000032/s*.txt; unpack "
            "mimic-cxr-reports.zip of MIMIC-CXR there, or name its directory as data.reports"
        )


def patients_of(tree: Path) -> set[str]:
    """Return the ids of the patients that have a folder in a tree."""
    return {name[1:] for group in _groups(tree) for name in os.listdir(tree / group)}


def _projects(root: Path) -> list[Path]:
    """Return the directories beneath a root that may hold a project's files, newest first."""
    places = [root]
    for pattern in PROJECTS:
        places += sorted((p for p in root.glob(pattern) if p.is_dir()), reverse=True)
    return places


def _groups(tree: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(tree) if re.fullmatch(r"p\d\d", name))
    except OSError:
        return []


def _kinds_of_trees(projects: list[Path]) -> dict[Path, set[str]]:
    trees = [tree for project in projects for tree in (project / "files", project)]
    return {tree: _kinds(tree) for tree in trees}


def _kinds(tree: Path) -> set[str]:
    """Return the suffixes of the files of the first patients of a tree, studies included."""
    kinds = set()
    for group in _groups(tree):
        with os.scandir(tree / group) as patients:
            for patient in islice(patients, PROBED):
                for entry in os.scandir(patient.path) if patient.is_dir() else ():
                    names = os.listdir(entry.path) if entry.is_dir() else [entry.name]
                    kinds |= {os.path.splitext(name)[1] for name in names if name[0] != "."}
    return kinds
