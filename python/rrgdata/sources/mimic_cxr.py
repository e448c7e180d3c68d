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
  first image. One that is neither in the same split nor in train is passed over, and counted.
- Labels: 1 positive, 0 negative, -1 uncertain, empty blank. Where the radiologist has labelled a
  study, those labels are taken and marked expert.
- A study whose report has not the sections asked for (`sections.py`) is left out, and so is one
  of a patient whose folder is not there, as after a partial download; both are counted.

Layout: https://physionet.org/content/mimic-cxr-jpg/2.1.0/ and
https://physionet.org/content/mimic-cxr/2.1.0/; views: the values of ViewPosition in use.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from rrgclinical import rules
from rrgclinical.common import rtf
from rrgclinical.common.errors import PassingError
from rrgclinical.common.spreadsheets import whole_number
from rrgclinical.labels import OBSERVATIONS
from rrgdata import sections
from rrgdata.catalogue import Catalogue, ReadSettings, traits_of
from rrgdata.file_memory import read_all
from rrgdata.sections import ReportSections, read_sections
from rrgdata.sources.mimic_files import MimicFiles, patients_of
from rrgdata.sources.source import Published, Source
from rrgdata.sources.tables import add_study, cell_classes, read_csv
from rrgdata.study import ImageRef, Study, view_of_name

SPLITS = {"train": "train", "validate": "val", "test": "test"}
Labels = dict[str, tuple[int, ...]]


@dataclass(slots=True)
class _Exam:
    """A study in the lists: its patient, split, time and images as (dicom_id, view)."""

    patient: str
    split: str = ""
    time: tuple[int, float] | None = None
    images: list[tuple[str, str]] = field(default_factory=list)
    made: list[tuple[Path, str]] | None = None

    def folder(self, name: str) -> str:
        return f"p{self.patient[:2]}/p{self.patient}/s{name}"

    def files(self, tree: Path, name: str, suffix: str) -> list[tuple[Path, str]]:
        """Return path and view of the images; a prior shares them with its own study."""
        if self.made is None:
            place = tree / self.folder(name)
            self.made = [(place / f"{image}{suffix}", view) for image, view in self.images]
        return self.made


def load_mimic_cxr(root: Path, settings: ReadSettings, catalogue: Catalogue) -> None:
    """Fill the catalogue with the studies under `root`, in the order of the lists.

    UserError for a list that is missing, truncated or without a column, and where no report or no
    image is found; a defect of one study goes to the catalogue.
    """
    files = MimicFiles(root)
    exams = _exams(files, settings, catalogue)
    priors = _priors(exams, catalogue) if settings.prior == "last" else {}
    listed = dict(exams)  # a study with a bad label leaves `exams`, and yet is a prior
    labels, expert = _labels(files, exams, catalogue)
    reports = files.reports(settings.reports)
    patients = patients_of(reports)
    images, suffix = reports, ""
    if settings.images != "none":
        images, suffix = files.images()
        patients &= patients_of(images)
    for exam in exams.values():
        if exam.patient not in patients:
            catalogue.leave_out("of patients whose folder is not there", split=exam.split)
    named = [name for name, exam in exams.items() if exam.patient in patients]
    paths = (reports / f"{exams[name].folder(name)}.txt" for name in named)
    makes_plain = sorted(Path(rules.__file__).parent.glob("*.py"))
    sources = (Path(sections.__file__), Path(rtf.__file__), *makes_plain)
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    texts = read_all(reports, paths, _read_report, version, total=len(named))
    for name, (_, text) in zip(named, texts, strict=True):
        exam, where = exams[name], f"study {name}"
        if isinstance(text, str):
            catalogue.add_broken(where, text)
            continue
        *texts_of, in_rtf, words = text
        catalogue.wording.note(in_rtf, words)
        refs = [ImageRef(*image) for image in exam.files(images, name, suffix)]
        if name in priors:
            earlier = listed[priors[name]].files(images, priors[name], suffix)
            refs += [ImageRef(*image, prior=True) for image in earlier]
        study = Study(
            name,
            exam.split,
            None,
            labels.get(name),
            tuple(refs),
            expert=name in expert,
            patient=exam.patient,
        )
        add_study(study, ReportSections(*texts_of), where, settings, catalogue)
    if labels:
        unlabelled = sum(name not in labels for name in named)
        if unlabelled:
            catalogue.notes.append(f"{unlabelled} studies of MIMIC-CXR have no labels")


def _exams(files: MimicFiles, settings: ReadSettings, catalogue: Catalogue) -> dict[str, _Exam]:
    """Read the split and, unless no images are wanted, the metadata."""
    path = files.list_of("split")
    exams: dict[str, _Exam] = {}
    broken: dict[str, str] = {}
    for _, row in _read_list(path, ("study_id", "subject_id", "split"), catalogue):
        name, patient, split = row.values()
        exam = exams.setdefault(name, _Exam(patient, SPLITS.get(split, "")))
        if split not in SPLITS:
            broken[name] = f"has split {split!r} in {path.name}; wanted {', '.join(SPLITS)}"
        elif exam.split and (exam.split, exam.patient) != (SPLITS[split], patient):
            broken[name] = f"has two splits or patients in {path.name}; keep one"
    if settings.images != "none":
        dated = settings.prior == "last"
        for name, why in _add_images(exams, files, path.name, dated, catalogue):
            broken.setdefault(name, why)
    patients = {exams[name].patient for name in broken}
    for name, why in broken.items():
        del exams[name]
        catalogue.add_broken(f"study {name}", why)
    doubtful = sum(exam.patient in patients for exam in exams.values())
    if doubtful and settings.prior == "last":
        catalogue.notes.append(
            f"{doubtful} studies have no sure prior, as another study of their patient is broken"
        )
    return exams


def _read_list(
    path: Path, columns: Sequence[str], catalogue: Catalogue
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the rows of a list, "50414267.0" read as 50414267; one without whole ids is broken."""
    ids = [name for name in columns if name in ("study_id", "subject_id")]
    for where, row in read_csv(path, columns, catalogue):
        for name in ids:
            number = whole_number(row[name])
            if number is None:
                why = f"has {name} {row[name]!r}; wanted a whole number; download the list again"
                catalogue.add_broken(where, why)
                break
            row[name] = number
        else:
            yield where, row


def _add_images(
    exams: dict[str, _Exam], files: MimicFiles, split: str, dated: bool, catalogue: Catalogue
) -> Iterator[tuple[str, str]]:
    """Give the studies their images and times; yields those that are broken, and why."""
    path = files.list_of("metadata")
    columns = ("dicom_id", "subject_id", "study_id", "ViewPosition", "StudyDate", "StudyTime")
    listed: set[str] = set()
    for where, row in _read_list(path, columns, catalogue):
        image, patient, name, view, date, time = row.values()
        exam = exams.get(name)
        if exam is None:
            exam = exams[name] = _Exam(patient)
            yield name, f"is in {path.name} and not in {split}; add its split"
        if not image or patient != exam.patient:
            yield name, f"has no image or another patient in {where}; download the list again"
        elif image in listed:
            yield name, f"has the image {image} again in {where}; keep one row"
        else:
            listed.add(image)
            exam.images.append((image, view_of_name(view)))
            at = _time(date, time) if dated else None
            if dated and at is None:
                fault = f"StudyDate {date!r}, StudyTime {time!r}"
                yield name, f"has {fault}; wanted YYYYMMDD and HHMMSS"
            elif at is not None and (exam.time is None or at < exam.time):
                exam.time = at
    for name, exam in exams.items():
        if not exam.images:
            yield name, f"is in {split} and has no image in {path.name}; download it again"


def _labels(
    files: MimicFiles, exams: dict[str, _Exam], catalogue: Catalogue
) -> tuple[Labels, set[str]]:
    """Read the labels of the studies, and which of them are a radiologist's."""
    labels: Labels = {}
    machine, human = files.optional_list("chexpert"), files.optional_list("test-set-labeled")
    if machine is None:
        catalogue.notes.append("MIMIC-CXR's labels, mimic-cxr-2.0.0-chexpert.csv, absent")
    else:
        labels = _read_labels(machine, OBSERVATIONS, exams, catalogue)
    if human is None:
        return labels, set()
    # Its column for Lung Opacity has the name of the category in the annotators' guide.
    names = ["Airspace Opacity" if n == "Lung Opacity" else n for n in OBSERVATIONS]
    read = _read_labels(human, names, exams, catalogue)
    return labels | read, set(read)


def _read_labels(
    path: Path, columns: Sequence[str], exams: dict[str, _Exam], catalogue: Catalogue
) -> Labels:
    labels: Labels = {}
    same: Labels = {}
    for where, row in _read_list(path, ("study_id", *columns), catalogue):
        name, *cells = row.values()
        key, wrong = ",".join(cells), list[str]()
        ids = same.get(key) or cell_classes(dict(zip(columns, cells, strict=True)), wrong)
        if ids is not None:
            labels[name] = same.setdefault(key, ids)
        elif exams.pop(name, None):
            catalogue.add_broken(f"study {name}", f"{wrong[0]}; see {where}")
    return labels


def _time(date: str, time: str) -> tuple[int, float] | None:
    """Parse a study's date and time; the time comes without leading zeros, with a fraction."""
    day = re.fullmatch(r"\d{4}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])", date.strip())
    hour = re.fullmatch(r"\d{1,6}(\.\d*)?", time.strip())
    return (int(day[0]), float(hour[0])) if day and hour else None


def _priors(exams: dict[str, _Exam], catalogue: Catalogue) -> dict[str, str]:
    """Return each study's prior: the patient's latest at an earlier time, in its split or train."""
    of_patient: dict[str, list[tuple[tuple[int, float], int, str]]] = {}
    for name, exam in exams.items():
        if exam.time is not None:
            number = int(name) if name.isdigit() else 0
            of_patient.setdefault(exam.patient, []).append((exam.time, number, name))
    priors = {}
    passed_over: set[str] = set()
    for studies in of_patient.values():
        studies.sort()
        for place, (time, _, name) in enumerate(studies):
            for at, _, earlier in reversed(studies[:place]):
                if at < time and exams[earlier].split in ("train", exams[name].split):
                    priors[name] = earlier
                    break
                if at < time:
                    passed_over.add(earlier)
    catalogue.note_passed_over(passed_over)
    return priors


def _read_report(path: Path) -> tuple[Any, ...] | str:
    """Read a report's sections, in `ReportSections`' order, and traits, or what is wrong with it.

    Raises PassingError where the file cannot be read, whatever it holds.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        return f"the report {path} has byte 0x{byte:02x}, not UTF-8; re-save it as UTF-8"
    except OSError as error:
        line = f"the report {path} cannot be read ({error.strerror}); unpack it again"
        raise PassingError(line) from None
    if not text.strip():
        return f"the report {path} is empty; unpack it again"
    return (*astuple(read_sections(text)), *traits_of(text))


SOURCE = Source(
    name="mimic_cxr",
    load=load_mimic_cxr,
    marks=tuple(f"{above}mimic-cxr-2.*-split.csv*" for above in ("", "*/", "*/*/")),
    reports_apart=True,
    priors=True,
    terms="PhysioNet's credentialed access; what is made of the data falls under it too",
    published=Published(
        {"train": (222_758, 368_960), "val": (1_808, 2_991), "test": (3_269, 5_159)},
        "all studies of the official split, with or without findings (R2Gen, table 1)",
        "https://arxiv.org/abs/2010.16056",
    ),
)
