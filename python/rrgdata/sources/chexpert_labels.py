"""Read the labels of CheXpert Plus: a labeller's by image, radiologists' by study."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rrgclinical.labels import OBSERVATIONS
from rrgdata.catalogue import Catalogue
from rrgdata.sources.tables import cell_classes, json_lines, read_csv

LABELS_OF = {
    "findings": "findings_fixed.json",
    "impression": "impression_fixed.json",
    "both": "report_fixed.json",
}
STUDY = re.compile(r"(patient\d+)/(study\d+)")
_IMAGE = re.compile(r"patient\d+/study\d+(?:/\w+)?")

Labels = dict[str, tuple[int, ...]]
"""Class ids by "patientN/studyM", or "patientN/studyM/viewK_frontal"."""


class ImageLabels:
    """Holds a labeller's classes by image, of the sections that are the report."""

    def __init__(self, root: Path, sections: str, catalogue: Catalogue) -> None:
        name = LABELS_OF[sections]
        files = sorted([*root.glob(name), *root.glob(f"*/{name}"), *root.glob(f"*/*/{name}")])
        self.name = name if files else ""
        self.labels: Labels = {}
        self.lacking = self.differing = 0
        if not files:
            line = f"no {name} under {root}: the studies have no labels of a labeller"
            catalogue.notes.append(line)
            return
        same: dict[tuple[int, ...], tuple[int, ...]] = {}  # one tuple for all equal ones
        for number, entry in json_lines(files[0]):
            where = f"{name}: line {number}"
            image = _IMAGE.search(str(entry.get("path_to_image", "")))
            if image is None:
                catalogue.add_broken(where, "names no patient and study in path_to_image")
                continue
            classes = _classes(entry, where, catalogue)
            if classes is not None:
                classes = same.setdefault(classes, classes)
                if self.labels.setdefault(image[0], classes) != classes:
                    catalogue.add_broken(where, f"has other labels for {image[0]} than before")

    def of(self, study: str, image: str, images: Sequence[str]) -> tuple[int, ...] | None:
        """Return the labels of an image of a study; None, counted, without a line.

        image: its name, as "view1_frontal"; "" for none, as of a study without text.
        """
        if not self.name or not image:
            return None
        # a line that names the study alone is of all its images
        of_study = self.labels.get(study)
        classes = {name: self.labels.get(f"{study}/{name}", of_study) for name in images}
        self.lacking += classes[image] is None
        self.differing += len(set(classes.values()) - {None}) > 1
        return classes[image]

    def tell(self, catalogue: Catalogue) -> None:
        """Note how many studies have no labels, or images whose labels differ."""
        if self.lacking:
            catalogue.notes.append(
                f"{self.lacking} studies have no labels: {self.name} has no line of the image "
                "whose report they have"
            )
        if self.differing:
            catalogue.notes.append(
                f"the images of {self.differing} studies have different labels in {self.name}: "
                "those of the image whose report is taken count"
            )


def _classes(entry: dict[str, Any], where: str, catalogue: Catalogue) -> tuple[int, ...] | None:
    """Translate 1, 0, -1 and nothing into class ids; None where one is something else."""
    wrong: list[str] = []
    values = {name: entry.get(name, "absent") for name in OBSERVATIONS}
    cells = {n: "" if value == "nan" or value != value else value for n, value in values.items()}
    classes = cell_classes(cells, wrong)
    if classes is None:
        catalogue.add_broken(where, wrong[0])
        return None
    named = zip(OBSERVATIONS, classes, strict=True)
    return tuple(0 if (name, i) == ("No Finding", 2) else i for name, i in named)


def read_human(root: Path, names: tuple[str, ...], catalogue: Catalogue) -> tuple[Labels, set[str]]:
    """Read radiologists' labels in the first of these files that is there, and whose differ."""
    folders = [root, *sorted(root.glob("CheXpert*")), *sorted(root.glob("cheXpert*"))]
    file = next((f / name for name in names for f in folders if (f / name).is_file()), None)
    labels: Labels = {}
    at_odds: set[str] = set()
    if file is None:
        return labels, at_odds
    for where, cells in read_csv(file, OBSERVATIONS, catalogue, optional=("Path", "Study")):
        study = STUDY.search(cells.get("Study") or cells.get("Path") or "")
        classes = _classes(dict(cells), where, catalogue)
        if study is None:
            catalogue.add_broken(where, "names no patient and study in Path or Study")
        elif classes is not None:
            name = f"{study[1]}/{study[2]}"
            if labels.setdefault(name, classes) != classes:
                catalogue.add_broken(f"{where} ({name})", "has other labels than the row before it")
                at_odds.add(name)
    return {name: of for name, of in labels.items() if name not in at_odds}, at_odds
