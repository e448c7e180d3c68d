"""Studies of CheXpert Plus: sectioned reports, labels of a labeller, human labels of 200 studies.

    df_chexpert_plus_240401.csv      one row an image, the sections of its report in columns
    PNG/PNG/train/patientN/studyM/   images, PNG or DICOM, in any folder up to two levels down
    chexbert_labels/*_fixed.json     optional: one JSON object a line, an image and 14 labels
    valid.csv                        optional: CheXpert's own, human labels of the valid split
    groundtruth.csv                  optional: human labels of CheXpert's test set
    annotation.json                  optional: a split of others

Columns, `path_to_image` and the label files: uzh-dqbm-cmi/RadVLM, radvlm/data/datasets.py, and
f10409/RadHarmony, radharmony/harmonizer/chexpert/chexpert_plus.py, which agree; the data set is
Chambon et al., arXiv 2405.19538. Sources differ on the folders (PNG, PNG/PNG, DICOM/Uncompressed,
CheXpert-v1.0), so any folder that holds train or valid is taken, the format with most patients. The
test set is another download, and may have another format.

Rows with the same patient and study are one study. Its text, and the labels of a labeller, are
those of one image: the first that has all the wanted sections, or else the first that has one.
Studies whose images differ in either are counted, and so are those that have no line of labels for
that image, and hence no labels: another image's would be of another report. With
data.prior=last the images of the patient's study before it in `patient_report_date_order` are its
prior, but for studies that annotation.json puts neither in the same split nor in train; those
passed over are counted. The paper calls that order chronological; a public workshop that read dates
in the reports found about half of such pairs inverted, which could not be checked here.

The split is the table's: train, and valid as val; there is no test. MambaXray-VL's split, which
DEER and OraPO evaluate on (57,805 with findings: 40,463, 5,780 and 11,562; arXiv 2410.00379), is a
file outside the data set, linked in Event-AHU/Medical_Image_Analysis,
CXPMRG_Bench_MambaXray_VL/README.MD. Laid beside the table as annotation.json (R2Gen's layout) it
decides the split, by the patient and study in `image_path`. The file itself could not be read.

Labels are of the text that is the report: findings_fixed.json, impression_fixed.json, or, for
both, report_fixed.json, which also reads the history. 1 is positive, 0 negative, -1 uncertain, null
blank. Human labels (rajpurkarlab/cheXpert-test-set-labels for the test set) come before them and
are `expert`; 0 is negative, for No Finding blank. The test set has no reports, so its studies have
labels alone, and none of them is read beside annotation.json.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rrgclinical.common.errors import UserError
from rrgdata.catalogue import Catalogue, ReadSettings
from rrgdata.problems import files_of, only_file
from rrgdata.sections import ReportSections
from rrgdata.sources.chexpert_labels import STUDY, ImageLabels, read_human
from rrgdata.sources.source import Published, Source
from rrgdata.sources.tables import add_study, read_csv, read_split
from rrgdata.study import ImageRef, Study

SPLIT_OF = {"train": "train", "valid": "val"}
FORMATS = (".png", ".jpg", ".dcm")
CONTEXT = ("section_clinical_history", "section_history", "section_technique", "section_comparison")
NEEDED = (
    *("path_to_image", "frontal_lateral", "deid_patient_id", "patient_report_date_order"),
    *("section_findings", "section_impression", "split"),
)

_IMAGE = re.compile(r"(?:.*/)?(train|valid)/(patient\d+)/(study\d+)/(\w+)\.\w+")


@dataclass(slots=True)
class _Rows:
    """The rows of one study."""

    where: str
    folder: str
    """Split and patient as the table names them: "train/patient00001"."""
    name: str
    order: float
    split: str
    cells: dict[str, str]
    images: list[tuple[str, str]] = field(default_factory=list)
    """File without suffix, view."""
    image: str = ""
    """That of the cells."""
    texts: set[int] = field(default_factory=set)
    """Hashes of the wanted sections of the images that have one."""

    def take(self, image: str, cells: dict[str, str], sections: list[str]) -> None:
        """Take the text of the first image that has the sections, or has one."""
        texts = tuple(cells[name] for name in sections)
        if any(texts):
            self.texts.add(hash(tuple(" ".join(text.split()) for text in texts)))
            if not self.cells or (all(texts) and not all(map(self.cells.get, sections))):
                self.cells, self.image = cells, image

    def sections(self, catalogue: Catalogue) -> ReportSections:
        histories = ("section_clinical_history", "section_history")
        read = (catalogue.read(self.cells.get(n), n, self.where, context=True) for n in histories)
        return ReportSections(
            findings=self.cells.get("section_findings", ""),
            impression=self.cells.get("section_impression", ""),
            indication=next(filter(None, read), ""),
            technique=self.cells.get("section_technique", ""),
            comparison=self.cells.get("section_comparison", ""),
        )


def load_chexpert_plus(root: Path, settings: ReadSettings, catalogue: Catalogue) -> None:
    """Add the studies of CheXpert Plus under `root`.

    UserError for a table or label file that cannot be read, and where no patient of the table has
    a folder of images. A row with another path, split or order than the layout has is broken, and
    so is a study whose rows, or whose human labels, contradict each other.
    """
    table = only_file(root, "df_chexpert_plus_*.csv", "; wanted one, CheXpert Plus's table")
    split = read_split(root / "annotation.json", _named, "patient and study in image_path")
    folders, suffix = ({}, "") if settings.images == "none" else _folders(root, ("train", "valid"))
    labels = ImageLabels(root, settings.sections, catalogue)
    human, at_odds = read_human(root, ("valid.csv", "val_labels.csv"), catalogue)
    patients: dict[str, list[_Rows]] = {}
    lacking = dict(split or {})
    for rows in _studies(table, settings.sections, catalogue):
        lacking.pop(rows.name, None)
        patients.setdefault(rows.folder, []).append(rows)
    if settings.images != "none" and not any(folder in folders for folder in patients):
        raise UserError(
            f"{root} has no folder such as PNG/{next(iter(patients), 'train/patient00001')} for a "
            f"patient of {table.name}; put the images there, or set data.images=none"
        )
    passed_over: set[str] = set()
    differing = 0
    for folder, studies in patients.items():
        if settings.images != "none" and folder not in folders:
            for rows in studies:
                catalogue.leave_out("of patients without a folder of images", split=rows.split)
            continue
        base = folders.get(folder)
        studies.sort(key=lambda rows: rows.order)
        for rows in studies:
            if split is not None and rows.name not in split:
                catalogue.leave_out("not in annotation.json")
                continue
            if rows.name in at_odds:
                continue
            images = [*_refs(base, rows, suffix)]
            if settings.prior == "last":
                earlier = _prior(rows, studies, split, passed_over)
                images += [] if earlier is None else _refs(base, earlier, suffix, prior=True)
            differing += len(rows.texts) > 1
            classes = human.get(rows.name)
            if classes is None:
                classes = labels.of(rows.name, rows.image, [name for name, _ in rows.images])
            study = Study(
                rows.name.replace("/", "_"),
                rows.split if split is None else split[rows.name],
                None,
                classes,
                tuple(images),
                expert=rows.name in human,
                patient=folder,
            )
            add_study(study, rows.sections(catalogue), rows.where, settings, catalogue)
    if differing:
        catalogue.notes.append(
            f"the images of {differing} studies have different reports: the first is taken"
        )
    labels.tell(catalogue)
    for name in lacking.values():
        catalogue.leave_out("of annotation.json that have no report here", split=name)
    catalogue.note_passed_over(passed_over)
    if split is None:
        _add_test_set(root, settings, catalogue)


def _studies(table: Path, sections: str, catalogue: Catalogue) -> Iterator[_Rows]:
    """Yield each study of the table with all its images, in the order of its first row.

    One whose rows differ in folder, split or order is broken, and not yielded.

    Texts of a study without the wanted section are let go: they are most of the table.
    """
    names = ("findings", "impression") if sections == "both" else (sections,)
    texts = [f"section_{name}" for name in names]
    studies: dict[str, _Rows] = {}
    at_odds: dict[str, str] = {}
    for where, cells in read_csv(table, NEEDED, catalogue, optional=CONTEXT):
        path, view = cells["path_to_image"], cells["frontal_lateral"].strip().lower()
        image = _IMAGE.fullmatch(path)
        order = _number(cells["patient_report_date_order"])
        if image is None:
            why = f"has path_to_image {path!r}; wanted train/patientN/studyM/viewK_frontal.jpg"
        elif view not in ("frontal", "lateral"):
            why = f"has frontal_lateral {view!r} for {path}; wanted Frontal or Lateral"
        elif cells["split"] not in SPLIT_OF:
            why = f"has split {cells['split']!r} for {path}; wanted train or valid"
        elif order is None:
            why = f"has no number as patient_report_date_order for {path}; download the table again"
        else:
            name = f"{image[2]}/{image[3]}"
            split, folder = SPLIT_OF[cells["split"]], f"{image[1]}/{image[2]}"
            row = _Rows(f"{where} ({name})", folder, name, order, split, {})
            rows = studies.setdefault(name, row)
            if (image[4], view) not in rows.images:
                for text in texts:
                    cells[text] = catalogue.read(cells[text], text, where)
                rows.take(image[4], cells, texts)
                rows.images.append((image[4], view))
                if (rows.folder, rows.split, rows.order) != (folder, split, order):
                    own = f"{folder}, split {split} and order {order:g}"
                    at_odds[name] = f"has {own} in {where}, not as before; download the table again"
                continue
            why = f"repeats the image {path!r}; keep one"
        catalogue.add_broken(where, why)
    for name, why in at_odds.items():
        catalogue.add_broken(studies.pop(name).where, why)
    yield from studies.values()


def _number(text: str) -> float | None:
    try:
        return float(text) if math.isfinite(float(text)) else None
    except ValueError:
        return None


def _prior(
    rows: _Rows, studies: list[_Rows], split: dict[str, str] | None, passed_over: set[str]
) -> _Rows | None:
    """Return the latest study before this one that is in its split or in train."""
    for other in reversed(studies):
        if other.order < rows.order:
            if split is None or split.get(other.name) in ("train", split[rows.name]):
                return other
            passed_over.add(other.name)
    return None


def _refs(
    base: Path | None, rows: _Rows, suffix: str, *, prior: bool = False
) -> Iterator[ImageRef]:
    if base is not None:
        folder = base / rows.name.split("/")[1]
        for stem, view in rows.images:
            yield ImageRef(folder / f"{stem}{suffix}", view, prior)


def _folders(root: Path, splits: tuple[str, ...]) -> tuple[dict[str, Path], str]:
    """Find the folder of each patient, "train/patient00001", in the format with most of them."""
    folders: dict[str, dict[str, Path]] = {suffix: {} for suffix in FORMATS}
    for base in _bases(root, 2):
        for split in splits:
            if (base / split).is_dir():
                names = sorted(os.listdir(base / split))
                suffix = _format(base / split, names)
                if suffix is not None:
                    for name in names:
                        folders[suffix].setdefault(f"{split}/{name}", base / split / name)
    suffix = max(FORMATS, key=lambda name: len(folders[name]))
    return folders[suffix], suffix


def _bases(folder: Path, depth: int) -> Iterator[Path]:
    """Yield a folder and those beneath it, but for the many beneath train and valid."""
    yield folder
    if depth:
        for inner in sorted(folder.iterdir()):
            if inner.is_dir() and inner.name not in ("train", "valid", "test"):
                yield from _bases(inner, depth - 1)


def _format(split: Path, patients: list[str]) -> str | None:
    """Tell the suffix of the first image beneath a split's folder, or None."""
    for patient in patients:
        for file in files_of(split / patient, "study*/*"):
            if file.suffix in FORMATS:
                return file.suffix
    return None


def _add_test_set(root: Path, settings: ReadSettings, catalogue: Catalogue) -> None:
    """Add the studies of CheXpert's test set, labels and images without reports."""
    labels, _ = read_human(root, ("groundtruth.csv", "test_labels.csv"), catalogue)
    folders, suffix = ({}, "") if settings.images == "none" else _folders(root, ("test",))
    for name, classes in labels.items():
        patient, study = name.split("/")
        place = f"test/{patient}"
        folder = folders.get(place)
        files = [] if folder is None else files_of(folder / study, f"*{suffix}")
        images = [ImageRef(f, "lateral" if "lateral" in f.stem else "frontal") for f in files]
        read = Study(
            f"{patient}_{study}", "test", None, classes, tuple(images), expert=True, patient=place
        )
        add_study(read, None, f"groundtruth.csv ({name})", settings, catalogue)


def _named(entry: dict[str, Any]) -> str | None:
    """Name the study of an entry of annotation.json by its images."""
    study = STUDY.search(json.dumps(entry.get("image_path")))
    return f"{study[1]}/{study[2]}" if study else None


SOURCE = Source(
    name="chexpert_plus",
    load=load_chexpert_plus,
    marks=("df_chexpert_plus_*.csv",),
    priors=True,
    terms="the agreement of Stanford AIMI",
    published=Published(
        {"all": (187_711, 223_228), "val": (200, 234)},
        "all studies, with or without findings (Chambon et al.; val: CheXpert, arXiv 1901.07031)",
        "https://arxiv.org/abs/2405.19538",
    ),
)
