"""Studies of MIMIC-CXR as PhysioNet gives it: MIMIC-CXR-JPG or MIMIC-CXR, nothing converted.

    mimic-cxr-2.0.0-split.csv[.gz]       study_id, subject_id, split (train, validate, test)
    mimic-cxr-2.0.0-metadata.csv[.gz]    a row an image: dicom_id, subject_id, study_id,
                                         ViewPosition, StudyDate, StudyTime
    mimic-cxr-2.0.0-chexpert.csv[.gz]    optional: CheXpert's labels of the reports
    mimic-cxr-2.1.0-test-set-labeled.csv optional: labels of 687 test reports by a radiologist
    files/p10/p10000032/s50414267/*.jpg  images, or *.dcm
    files/p10/p10000032/s50414267.txt    reports, from mimic-cxr-reports.zip, unpacked

The root is the directory of one of the two projects, or one above both such as
`physionet.org/files`; reports elsewhere are named by `data.reports`. The two lists of labels by
NegBio, and of records and studies, are not read: paths follow from the ids.

- Views: PA and AP are frontal, LATERAL and LL lateral; of the others (obliques, decubitus,
  swimmer's, axial, none given) the view is "".
- `data.prior=last` adds the images of the patient's latest study before this one, by StudyDate
  and StudyTime; of several at one time that with the greatest id. A study's time is that of its
  first image.
- Labels: 1 positive, 0 negative, -1 uncertain, empty blank. Where the radiologist has labelled a
  study, those labels are taken and marked expert.
- A study whose report has not the sections asked for (`sections.py`) is left out, and so is one
  of a patient whose folder is not there, as after a partial download; both are counted.

Layout: https://physionet.org/content/mimic-cxr-jpg/2.1.0/ and
https://physionet.org/content/mimic-cxr/2.1.0/; views: the values of ViewPosition in use.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from itertools import islice
from pathlib import Path

from rrgclinical.labels import OBSERVATIONS
from rrgtrain.data import sections
from rrgtrain.data.catalogue import Catalogue, Wanted
from rrgtrain.data.index import read_all
from rrgtrain.data.sections import ReportSections, read_sections
from rrgtrain.data.study import ImageRef, Study
from rrgtrain.errors import UserError

SPLITS = {"train": "train", "validate": "val", "test": "test"}
VIEWS = {"PA": "frontal", "AP": "frontal", "LATERAL": "lateral", "LL": "lateral"}
CLASSES = {"": 0, "1": 1, "1.0": 1, "0": 2, "0.0": 2, "-1": 3, "-1.0": 3}
SUFFIXES = (".jpg", ".dcm")
# Where the projects lie beneath a root, the nearest first.
PROJECTS = (
    "mimic-cxr*",
    "2*",
    "mimic-cxr*/2*",
    "files/mimic-cxr*/2*",
    "physionet.org/files/mimic-cxr*/2*",
)
NO_SECTION = {
    "findings": "without a findings section",
    "impression": "without an impression",
    "both": "without findings or impression",
}
PROBED = 20
"""Patients of a group that are looked at for the kinds of files in a tree."""


@dataclass(slots=True)
class _Exam:
    """A study in the lists: its patient, split, time and images as (dicom_id, view)."""

    patient: str
    split: str = ""
    time: tuple[int, float] | None = None
    images: list[tuple[str, str]] = field(default_factory=list)
    made: list[tuple[Path, str]] | None = None

    def folder(self, name: str) -> str:
        """Return the study's folder in a tree."""
        return f"p{self.patient[:2]}/p{self.patient}/s{name}"

    def files(self, tree: Path, name: str, suffix: str, views: str) -> list[tuple[Path, str]]:
        """Return path and view of the images that `data.images` asks for, made once."""
        if self.made is None:
            place = tree / self.folder(name)
            self.made = [
                (place / f"{image}{suffix}", view)
                for image, view in self.images
                if views == "all" or view == "frontal"
            ]
        return self.made


def load_mimic_cxr(root: Path, wanted: Wanted, catalogue: Catalogue) -> None:
    """Fill the catalogue with the studies under `root`, in the order of the lists.

    UserError for a list that is missing, truncated or without a column, and where no report or no
    image is found; a defect of one study goes to the catalogue.
    """
    reader = _Reader(root, wanted, catalogue)
    exams = reader.exams()
    labels, expert = reader.labels()
    priors = _priors(exams) if wanted.prior == "last" else {}
    reports, images, suffix = reader.trees()
    patients = _patients(reports)
    if wanted.images != "none":
        patients &= _patients(images)
    named = []
    for name, exam in exams.items():
        if exam.patient in patients:
            named.append(name)
        else:
            catalogue.leave_out("of patients whose folder is not there", split=exam.split)
    paths = (reports / f"{exams[name].folder(name)}.txt" for name in named)
    version = hashlib.sha256(Path(sections.__file__).read_bytes()).hexdigest()
    texts = read_all(reports, paths, _read_report, version, total=len(named))
    unlabelled = 0
    for name, (_, text) in zip(named, texts, strict=True):
        where, exam = f"study {name}", exams[name]
        if isinstance(text, str):
            catalogue.add_broken(where, text)
            continue
        parts = ReportSections(*text)
        report = parts.report(wanted.sections)
        if not report:
            catalogue.leave_out(NO_SECTION[wanted.sections], split=exam.split)
            continue
        refs: list[ImageRef] = []
        if wanted.images != "none":
            refs = [ImageRef(*image) for image in exam.files(images, name, suffix, wanted.images)]
            if not refs:
                catalogue.leave_out("without a frontal image", split=exam.split)
                continue
            if name in priors:
                before = exams[priors[name]]
                files = before.files(images, priors[name], suffix, wanted.images)
                refs += [ImageRef(*image, prior=True) for image in files]
            defects = ((ref, catalogue.image_defect(ref.path)) for ref in refs)
            defect = next((f"image {ref.path}: {why}" for ref, why in defects if why), None)
            if defect:
                catalogue.add_broken(where, f"{defect}; download it again")
                continue
        unlabelled += name not in labels
        study = Study(
            id=name,
            split=exam.split,
            report=report,
            labels=labels.get(name),
            images=tuple(refs),
            indication=parts.indication,
            technique=parts.technique,
            comparison=parts.comparison,
            expert=name in expert,
        )
        catalogue.add(study, where)
    if labels and unlabelled:
        catalogue.notes.append(f"{unlabelled} studies of MIMIC-CXR have no labels")


class _Reader:
    """Finds the files beneath a root and reads the lists."""

    def __init__(self, root: Path, wanted: Wanted, catalogue: Catalogue) -> None:
        self.root, self.wanted, self.catalogue = root, wanted, catalogue
        self.projects = _projects(root)

    def exams(self) -> dict[str, _Exam]:
        """Read the split and, unless no images are wanted, the metadata."""
        path = self._file("split")
        exams: dict[str, _Exam] = {}
        broken: dict[str, str] = {}
        for _, (name, patient, split) in self._rows(path, "study_id", "subject_id", "split"):
            exam = exams.setdefault(name, _Exam(patient, SPLITS.get(split, "")))
            if split not in SPLITS:
                broken[name] = f"has split {split!r} in {path.name}; wanted {', '.join(SPLITS)}"
            elif exam.split and (exam.split, exam.patient) != (SPLITS[split], patient):
                broken[name] = f"has two splits or patients in {path.name}; keep one"
        if self.wanted.images != "none":
            self._metadata(exams, broken, path.name)
        for name, why in broken.items():
            del exams[name]
            self.catalogue.add_broken(f"study {name}", why)
        return exams

    def _metadata(self, exams: dict[str, _Exam], broken: dict[str, str], split: str) -> None:
        path = self._file("metadata")
        columns = ("dicom_id", "subject_id", "study_id", "ViewPosition", "StudyDate", "StudyTime")
        rows_of: dict[str, int] = {}
        for row, (image, patient, name, view, date, time) in self._rows(path, *columns):
            exam = exams.get(name)
            if exam is None:
                exam = exams[name] = _Exam(patient)
                broken[name] = f"is in {path.name} and not in {split}; add its split"
            first = rows_of.setdefault(image, row)
            if first != row:
                broken.setdefault(
                    name, f"row {row} of {path.name} repeats the image {image} of row {first}"
                )
                continue
            if not image or patient != exam.patient:
                broken.setdefault(name, f"row {row} of {path.name} has no image or another patient")
                continue
            exam.images.append((image, VIEWS.get(view.strip(), "")))
            if self.wanted.prior == "last":
                at = _time(date, time)
                if at is None:
                    seen = f"StudyDate {date!r}, StudyTime {time!r}"
                    broken.setdefault(name, f"has {seen}; wanted YYYYMMDD and HHMMSS")
                elif exam.time is None or at < exam.time:
                    exam.time = at
        for name, exam in exams.items():
            if not exam.images:
                broken.setdefault(name, f"is in {split} and has no image in {path.name}")

    def labels(self) -> tuple[dict[str, tuple[int, ...]], set[str]]:
        """Read the labels of the studies, and which of them are a radiologist's."""
        labels: dict[str, tuple[int, ...]] = {}
        machine, human = self._optional("chexpert"), self._optional("test-set-labeled")
        if machine is None:
            self.catalogue.notes.append("MIMIC-CXR's labels, mimic-cxr-2.0.0-chexpert.csv, absent")
        else:
            labels = self._labels(machine, OBSERVATIONS)
        if human is None:
            return labels, set()
        # Its column for Lung Opacity has the name of the category in the annotators' guide.
        names = ["Airspace Opacity" if n == "Lung Opacity" else n for n in OBSERVATIONS]
        read = self._labels(human, names)
        return labels | read, set(read)

    def _labels(
        self, path: Path, columns: tuple[str, ...] | list[str]
    ) -> dict[str, tuple[int, ...]]:
        out: dict[str, tuple[int, ...]] = {}
        same: dict[tuple[int, ...], tuple[int, ...]] = {}
        for row, (name, *cells) in self._rows(path, "study_id", *columns):
            odd = next((cell for cell in cells if cell not in CLASSES), None)
            if odd is not None:
                where = f"{path.name} row {row} (study {name})"
                self.catalogue.add_broken(where, f"has label {odd!r}; wanted 1, 0, -1 or none")
                continue
            ids = tuple(CLASSES[cell] for cell in cells)
            out[name] = same.setdefault(ids, ids)
        return out

    def trees(self) -> tuple[Path, Path, str]:
        """Find the folders of p10 to p19 that hold the reports and the images, and their suffix."""
        trees = [tree for project in self.projects for tree in (project / "files", project)]
        kinds = {tree: _kinds(tree) for tree in trees}
        images = [(s, tree) for s in SUFFIXES for tree in trees if s in kinds[tree]]
        if self.wanted.images != "none" and not images:
            raise UserError(
                f"{self.root}: no images files/p10/p10000032/s50414267/*.jpg or *.dcm; name the "
                "directory of MIMIC-CXR-JPG, or set data.images=none"
            )
        if self.wanted.reports is not None:
            place = Path(self.wanted.reports).expanduser()
            if not place.is_dir():
                raise UserError(f"data.reports={place} is no directory; wanted that of the reports")
            trees = [tree for p in _projects(place) for tree in (p / "files", p)]
            kinds = {tree: _kinds(tree) for tree in trees}
        reports = [tree for tree in trees if ".txt" in kinds[tree]]
        if not reports:
            raise UserError(
                f"{self.wanted.reports or self.root}: no reports files/p10/p10000032/s*.txt; "
                "unpack mimic-cxr-reports.zip of MIMIC-CXR there, or name its directory as "
                "data.reports"
            )
        suffix, tree = images[0] if images else ("", self.root)
        return reports[0], tree, suffix

    def _file(self, kind: str) -> Path:
        path = self._optional(kind)
        if path is None:
            above = "; it is the directory above this one" if _groups(self.root) else ""
            raise UserError(
                f"{self.root}: no mimic-cxr-2.0.0-{kind}.csv or .csv.gz; wanted the directory of "
                f"MIMIC-CXR-JPG, as physionet.org/files/mimic-cxr-jpg/2.1.0{above}"
            )
        return path

    def _optional(self, kind: str) -> Path | None:
        for project in self.projects:
            for suffix in (".csv", ".csv.gz"):
                there = sorted(project.glob(f"mimic-cxr-2*-{kind}{suffix}"))
                if there:
                    return there[-1]
        return None

    def _rows(self, path: Path, *columns: str) -> Iterator[tuple[int, list[str]]]:
        """Read the cells of `columns`, row by row; the header is row 1."""
        opened = gzip.open if path.suffix == ".gz" else open
        try:
            with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
                rows = csv.reader(file)
                header = next(rows, [])
                for column in columns:
                    if column not in header:
                        have = ", ".join(header) or "nothing"
                        raise UserError(f"{path}: no column {column!r}; it has {have}")
                places = [header.index(column) for column in columns]
                for number, row in enumerate(rows, 2):
                    if len(row) == len(header):
                        yield number, [row[place] for place in places]
                    elif row:
                        seen = f"has {len(row)} cells; wanted {len(header)}"
                        self.catalogue.add_broken(f"{path.name} row {number}", seen)
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}: byte 0x{error.object[error.start]:02x} is not UTF-8; download it again"
            ) from None
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise UserError(f"{path}: breaks off, or is no gzip file; download it again") from None
        except csv.Error as error:
            raise UserError(f"{path}: not CSV ({error}); download it again") from None
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}; wanted a readable file") from None


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


def _patients(tree: Path) -> set[str]:
    """Return the ids of the patients that have a folder in a tree."""
    return {name[1:] for group in _groups(tree) for name in os.listdir(tree / group)}


def _kinds(tree: Path) -> set[str]:
    """Return the suffixes of the files of the first patients of a tree, studies included."""
    kinds = set()
    for group in _groups(tree):
        with os.scandir(tree / group) as patients:
            for patient in islice(patients, PROBED):
                for entry in os.scandir(patient.path) if patient.is_dir() else ():
                    names = os.listdir(entry.path) if entry.is_dir() else [entry.name]
                    kinds |= {os.path.splitext(name)[1] for name in names}
    return kinds


def _time(date: str, time: str) -> tuple[int, float] | None:
    """Parse a study's date and time; the time comes without leading zeros, with a fraction."""
    day = re.fullmatch(r"\d{4}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])", date.strip())
    hour = re.fullmatch(r"\d{1,6}(\.\d*)?", time.strip())
    return (int(day[0]), float(hour[0])) if day and hour else None


def _priors(exams: dict[str, _Exam]) -> dict[str, str]:
    """Return each study's prior: the same patient's latest study at an earlier time."""
    of_patient: dict[str, list[tuple[tuple[int, float], int, str]]] = {}
    for name, exam in exams.items():
        if exam.time is not None:
            number = int(name) if name.isdigit() else 0
            of_patient.setdefault(exam.patient, []).append((exam.time, number, name))
    priors = {}
    for studies in of_patient.values():
        studies.sort()
        for place, (time, _, name) in enumerate(studies):
            earlier = next((s for s in reversed(studies[:place]) if s[0] < time), None)
            if earlier is not None:
                priors[name] = earlier[2]
    return priors


def _read_report(path: Path) -> tuple[str, ...] | str:
    """Read the sections of a report in `ReportSections`' order, or say what is wrong with it."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        return f"the report {path} has byte 0x{byte:02x}, not UTF-8; re-save it as UTF-8"
    except OSError as error:
        return f"the report {path} cannot be read ({error.strerror}); unpack it again"
    if not text.strip():
        return f"the report {path} is empty; unpack it again"
    return astuple(read_sections(text))
