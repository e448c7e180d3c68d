"""Writes a small MIMIC-CXR as PhysioNet lays it out, and reads it."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from PIL import Image

from rrgclinical.labels import OBSERVATIONS
from tests.rrgdata import common
from tests.rrgdata.common import by_id, catalogue_of

METADATA = (
    "dicom_id,subject_id,study_id,PerformedProcedureStepDescription,ViewPosition,Rows,Columns,"
    "StudyDate,StudyTime,ProcedureCodeSequence_CodeMeaning,ViewCodeSequence_CodeMeaning,"
    "PatientOrientationCodeSequence_CodeMeaning"
)
REPORT = """                                 FINAL REPORT
 INDICATION:  Cough of study {study}.

 TECHNIQUE:  Two views.

 COMPARISON:  ___.

 FINDINGS:

 The lungs of study {study} are
 clear.

 IMPRESSION:  Normal {study}.
"""
FIRST = "50414267"
# patient, study, split, date, time, views
STUDIES = (
    ("10000032", FIRST, "train", "21800506", "213014.531", ("PA", "LATERAL")),
    ("10000032", "53189527", "train", "21800626", "165500.312", ("AP",)),
    ("10000032", "53911762", "train", "21800626", "94102.125", ("AP", "")),
    ("10000764", "57375967", "validate", "21321015", "83045.125", ("PA", "LL")),
    ("11001469", "54076811", "test", "21500101", "1200.5", ("AP", "LAO")),
)

Studies = Iterable[tuple[str, str, str, str, str, tuple[str, ...]]]


def image_name(study: str, number: int) -> str:
    return f"{study}-{number}aa-bde0afdd"


def folder(tree: Path, patient: str, study: str) -> Path:
    return tree / f"p{patient[:2]}" / f"p{patient}" / f"s{study}"


def write_lists(root: Path, studies: Studies = STUDIES, packed: bool = False) -> None:
    """Write metadata and split, gzipped as they are downloaded, or plain."""
    metadata, split = [METADATA], ["dicom_id,study_id,subject_id,split"]
    for patient, study, name, date, time, views in studies:
        for number, view in enumerate(views):
            image = image_name(study, number)
            split.append(f"{image},{study},{patient},{name}")
            row = [image, patient, study, "CHEST (PA AND LAT)", view, "3056", "2544", date, time]
            metadata.append(",".join([*row, '"CHEST, TWO VIEWS"', "lateral", "Erect"]))
    root.mkdir(parents=True, exist_ok=True)
    for kind, rows in (("metadata", metadata), ("split", split)):
        write_text(root / f"mimic-cxr-2.0.0-{kind}.csv", rows, packed)


def write_text(path: Path, rows: list[str], packed: bool = False) -> None:
    text = "".join(f"{row}\n" for row in rows).encode()
    if packed:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(text))
    else:
        path.write_bytes(text)


def write_labels(root: Path, rows: Mapping[str, Mapping[str, str]], human: bool = False) -> None:
    """Write labels by study; the list by a radiologist has another name for Lung Opacity."""
    names = sorted(OBSERVATIONS)
    if human:
        head = ["study_id", *("Airspace Opacity" if n == "Lung Opacity" else n for n in names)]
        path, before = root / "mimic-cxr-2.1.0-test-set-labeled.csv", []
    else:
        head, before = ["subject_id", "study_id", *names], ["1"]
        path = root / "mimic-cxr-2.0.0-chexpert.csv"
    lines = [[*before, study, *(cells.get(n, "") for n in names)] for study, cells in rows.items()]
    write_text(path, [",".join(line) for line in (head, *lines)], packed=not human)


def write_reports(tree: Path, studies: Studies = STUDIES) -> None:
    for patient, study, *_ in studies:
        path = folder(tree, patient, study).with_suffix(".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(REPORT.format(study=study))


def write_images(tree: Path, suffix: str = ".jpg", studies: Studies = STUDIES) -> None:
    for patient, study, *_, views in studies:
        place = folder(tree, patient, study)
        place.mkdir(parents=True, exist_ok=True)
        for number in range(len(views)):
            path = place / f"{image_name(study, number)}{suffix}"
            if suffix == ".jpg":
                Image.new("L", (2, 2)).save(path)
            else:
                path.write_bytes(b"DICM")


def write_mimic(root: Path, packed: bool = False, studies: Studies = STUDIES) -> Path:
    """Write one directory that holds both projects."""
    write_lists(root, studies, packed)
    write_reports(root / "files", studies)
    write_images(root / "files", studies=studies)
    return root


load = partial(catalogue_of, "mimic_cxr")
refused = partial(common.refused, "mimic_cxr")


def broken(root, name, *parts, **wanted):
    catalogue = load(root, **wanted)
    (only,) = catalogue.broken
    assert name in only.where and name not in by_id(catalogue)
    for part in parts:
        assert part in only.why
    return catalogue
