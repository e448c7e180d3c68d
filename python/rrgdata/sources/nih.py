"""Studies of NIH ChestX-ray14: one frontal radiograph each, labels, no report.

    labels.csv or Data_Entry_2017*.csv   columns "Image Index" and "Finding Labels" ("A|B")
    images                               in the root, images*/ or images*/images/
    train_val_list.txt, test_list.txt    optional: the official split

The label file is a catalogue of the whole dataset and the images come in twelve parts, so rows
whose image is not there are left out, with a warning that counts them; none there is an error.
Val is a tenth of the patients of train_val_list.txt; without the lists a fifth of the patients is
test and a tenth val. Which patient goes where depends on the patient's id alone.

Labels become CheXpert's. Text mining cannot tell absent from not mentioned, so what is not listed
is blank. Emphysema, Fibrosis and Hernia have no CheXpert observation: they only make No Finding
blank.

Layout: nihcc.app.box.com/v/ChestXray-NIHCC, whose twelve archives unpack to images/, and Kaggle's
copy nih-chest-xrays/data, images_001/images to images_012/images.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from rrgclinical.common.errors import UserError
from rrgclinical.common.spreadsheets import whole_number
from rrgclinical.labels import OBSERVATIONS
from rrgdata.catalogue import Catalogue, ReadSettings
from rrgdata.problems import SPLITS, first_of, only_file, read_text
from rrgdata.sources.source import Published, Source
from rrgdata.sources.tables import read_csv, share_of
from rrgdata.study import ImageRef, Study

NIH_TO_CHEXPERT: dict[str, str | None] = {
    "Atelectasis": "Atelectasis",
    "Cardiomegaly": "Cardiomegaly",
    "Consolidation": "Consolidation",
    "Edema": "Edema",
    "Effusion": "Pleural Effusion",
    "Emphysema": None,
    "Fibrosis": None,
    "Hernia": None,
    "Infiltration": "Lung Opacity",
    "Mass": "Lung Lesion",
    "No Finding": "No Finding",
    "Nodule": "Lung Lesion",
    "Pleural_Thickening": "Pleural Other",
    "Pneumonia": "Pneumonia",
    "Pneumothorax": "Pneumothorax",
}
FRONTAL = ("PA", "AP")


def load_nih(root: Path, settings: ReadSettings, catalogue: Catalogue) -> None:
    """Read the studies under `root` by split.

    Those whose image is there; all of them with `settings.images` "none". Broken rows are noted by
    their number (the header is row 1): another length, a label outside NIH's fifteen, No Finding
    beside a finding, an image twice. UserError for a table that is none, and where no image is
    there.
    """
    path = root / "labels.csv"
    if not path.is_file():
        path = only_file(root, "Data_Entry_2017*.csv", " and no labels.csv; wanted one")
    official = _official_split(root)
    files = None if settings.images == "none" else _index(root)
    catalogue.studies.update({split: [] for split in SPLITS})
    absent, total = [], 0
    columns = ("Image Index", "Finding Labels")
    for place, row in read_csv(path, columns, catalogue, optional=("Patient ID", "View Position")):
        name, total = row["Image Index"].strip(), total + 1
        where = f"{place} ({name})"
        labels, wrong = _labels(row["Finding Labels"])
        wrong += _wrong_with(row, name, files, catalogue)
        if wrong:
            catalogue.add_broken(where, first_of(wrong))
        elif files is not None and name not in files:
            absent.append(name)
        else:
            patient = row.get("Patient ID") or name.split("_")[0]
            patient = whole_number(patient) or patient  # 1.0 has the hash, and split, of 1
            refs = () if files is None else (ImageRef(files[name], "frontal"),)
            split = _split(name, patient, official)
            study = Study(name.rsplit(".", 1)[0], split, None, labels, refs, patient=patient)
            catalogue.add(study, where)
    if absent and len(absent) == total:
        raise UserError(
            f"{root}: none of the {total} images of {path.name} is there, first "
            f"{absent[0]!r}; put them in {root / 'images'}"
        )
    if absent:
        catalogue.notes.append(
            f"{root}: {len(absent)} of {total} images of {path.name} are not there "
            f"and left out, first {absent[0]!r}"
        )


def _wrong_with(
    row: dict[str, str], name: str, files: dict[str, Path] | None, catalogue: Catalogue
) -> list[str]:
    view = row.get("View Position")
    if not name or "/" in name or "\\" in name:
        return [f"has image {name!r}; wanted a file name"]
    if view and view not in FRONTAL:
        return [f"has view {view!r}; wanted PA or AP"]
    if files and name in files:
        defect = catalogue.image_defect(files[name])
        return [f"has image {name!r}, {defect}; copy it again"] if defect else []
    return []


def _labels(cell: str) -> tuple[tuple[int, ...], list[str]]:
    """Read the label ids of a cell, and what is wrong with it."""
    ids = dict.fromkeys(OBSERVATIONS, 0)
    names = [name.strip() for name in cell.split("|")]
    wrong = []
    for name in names:
        if not name:
            wrong.append("has an empty label; wanted names such as 'Mass|Nodule'")
        elif name not in NIH_TO_CHEXPERT:
            near = difflib.get_close_matches(name, NIH_TO_CHEXPERT, n=1, cutoff=0.0)
            wrong.append(f"has label {name!r}; the nearest known is {near[0]!r}")
        else:
            observation = NIH_TO_CHEXPERT[name]
            if observation is not None:
                ids[observation] = 1
    if "No Finding" in names and len(names) > 1:
        wrong.append(f"has 'No Finding' beside {names}; drop one of them")
    return tuple(ids.values()), wrong


def _index(root: Path) -> dict[str, Path]:
    folders = [root, *sorted(root.glob("images*")), *sorted(root.glob("images*/images"))]
    out: dict[str, Path] = {}
    for folder in folders:
        if folder.is_dir():
            for name in sorted(os.listdir(folder)):
                out.setdefault(name, folder / name)
    return out


def _official_split(root: Path) -> dict[str, str] | None:
    lists = {"train": root / "train_val_list.txt", "test": root / "test_list.txt"}
    there = [path for path in lists.values() if path.is_file()]
    if not there:
        return None
    if len(there) == 1:
        raise UserError(f"{root} has {there[0].name} alone; wanted both split lists or neither")
    return {name: split for split, path in lists.items() for name in read_text(path).split()}


def _split(name: str, patient: str, official: dict[str, str] | None) -> str:
    share = share_of(patient.strip())
    if official is not None:
        if name not in official:
            raise UserError(f"{name!r} is in neither train_val_list.txt nor test_list.txt; add it")
        return "test" if official[name] == "test" else ("val" if share < 0.1 else "train")
    return "val" if share < 0.1 else ("test" if share < 0.3 else "train")


SOURCE = Source(
    name="nih",
    load=load_nih,
    marks=("labels.csv", "Data_Entry_2017*.csv"),
    terms="public; cite the source",
    published=Published(
        {"train+val": (86_524, 86_524), "test": (25_596, 25_596), "all": (112_120, 112_120)},
        "lines of train_val_list.txt, test_list.txt and Data_Entry_2017.csv, one image each",
        "https://nihcc.app.box.com/v/ChestXray-NIHCC",
    ),
)
