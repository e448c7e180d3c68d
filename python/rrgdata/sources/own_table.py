"""Reads a table of one's own, CSV or JSONL, a row a study.

    id           name of the study; without it studies are named by their row: row2, row3, ...
    images       paths, several separated by "|" or as a list of JSON or Python
    report       the report; or columns findings and impression, of which `data.sections` chooses
    indication, technique, comparison
    prior        paths of the images of an earlier study, like images
    view         one for all images, or one for each: frontal, PA, AP, lateral, LL, these written
                 out ("left lateral"), or nothing
    labels       14 class ids as a JSON list (0 blank, 1 positive, 2 negative, 3 uncertain); or 14
                 columns with CheXpert's names, each 1, 0, -1 or empty as in CheXpert's own CSV,
                 and none of them filled where a study has no labels
    split        train; val, valid, validation, dev; test
    patient      keeps the studies of a patient in one split

A column is found by these names, those of ALSO, or as `data.columns` says. One such as `Impression`
or `ID`, or of paths of pictures, is refused until it is named; others are not read, and listed.
A text that says nothing, as nan, NA or null (`rrgclinical.common.nothing`), is empty, and
counted. One that is a list of texts, as pandas writes it, is read as paragraphs, and counted; one
that is an object is refused. Relative paths are relative to the file. A CSV has commas, semicolons
or tabs between its columns, whichever its header has most of, or what a line "sep=;" above it says.
Where there is no split, a tenth of the patients is val and a tenth test; who goes where depends on
the patient's name alone, or else on the study's. Studies that share an image go where the one of
the first name goes.
"""

from __future__ import annotations

import difflib
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rrgclinical.common.errors import UserError
from rrgclinical.common.nothing import is_nothing
from rrgclinical.common.resolve import nearest
from rrgclinical.common.spreadsheets import LOST_DIGITS, lost_digits, whole_number
from rrgclinical.labels import OBSERVATIONS
from rrgdata.catalogue import Catalogue, NoImageColumn, ReadSettings
from rrgdata.problems import SHOWN, SPLITS, first_of, is_text, kind_of, names_of
from rrgdata.sections import ReportSections
from rrgdata.sources.source import Source
from rrgdata.sources.tables import (
    CONTEXT,
    WITHOUT,
    Row,
    cell_classes,
    drawn_split,
    first_of_groups,
    listed_classes,
    pictured,
    read_header,
    read_rows,
    table_file,
    unlisted,
)
from rrgdata.study import ImageRef, Study, view_of_name

CONTENTS = (
    *("id", "images", "report", "findings", "impression", "indication", "technique"),
    *("comparison", "prior", "view", "labels", "split", "patient"),
)
ALSO = {
    "id": ("study_id",),
    "images": ("image", "image_path"),
    "prior": ("prior_images",),
    "view": ("views",),
    "patient": ("patient_id", "subject_id"),
}
"""Other names that a column is known by."""
SEPARATOR = "|"
POSITIONS = ("ERECT", "RECUMBENT", "SUPINE")
"""What stands among views and is none."""
SPLIT_NAMES = {"train": "train", "training": "train", "test": "test", "testing": "test"}
SPLIT_NAMES |= dict.fromkeys(("val", "valid", "validate", "validation", "dev"), "val")


def load_table(root: Path, settings: ReadSettings, catalogue: Catalogue) -> None:
    """Read the table at `root`, a file or a directory that holds one.

    UserError for a table that cannot be read, without rows, or without a column that is needed or
    named; a defect of one row goes to the catalogue.
    """
    header = read_header(path := table_file(root))
    columns = _columns(path, header, settings)
    labels = _label_columns(path, header, columns, catalogue)
    unread = [name for name in header if name and name not in {*columns.values(), *labels}]
    if unread:
        catalogue.notes.append(
            f"{path} has columns that are not read: {names_of(unread)}; say what one holds by, for "
            "an indication, 'data.columns={indication: NAME}'"
        )
    reader = _Reader(path, columns, labels, settings, catalogue)
    reader.check_columns(header)
    number = 1
    for number, row in read_rows(path, catalogue):
        reader.add(number, row)
    reader.divide()
    if number == 1 and not catalogue.broken:
        raise UserError(f"{path}: no rows; wanted one for each study")
    catalogue.notes += reader.notes()


def _columns(path: Path, header: list[str], settings: ReadSettings) -> dict[str, str]:
    """Find the column of each content that the table has."""
    names = [(c, name) for c in CONTENTS for name in (*reversed(ALSO.get(c, ())), c)]
    columns = {content: name for content, name in names if name in header}
    for content, name in settings.columns.items():
        if content not in CONTENTS:
            raise UserError(
                f"data.columns names {content!r}; {nearest(content, CONTENTS)}choose from "
                f"{', '.join(CONTENTS)}"
            )
        if name not in header:
            raise UserError(
                f"data.columns={{{content}: {name}}}: {path} has no such column; the nearest is "
                f"{_nearest(name, header)!r}, it has {names_of(header)}"
            )
        columns[content] = name
    if "report" in columns and "report" not in settings.columns:
        other = [part for part in ("findings", "impression") if part in columns]
        if other:
            raise UserError(
                f"{path} has columns {columns['report']} and {columns[other[0]]}; say which is the "
                f"report, as in data.columns={{report: {columns['report']}}}"
            )
    read = set(columns.values())
    contents = {_plain(name): content for content, name in names}
    meant = {contents.get(_plain(name), ""): name for name in header if name not in read}
    if "images" not in columns and settings.images != "none":
        meant.setdefault("images", next((name for name in pictured(path) if name not in read), ""))
    # not needed: a patient beside a split, a section beside the report, what tells of images
    idle = {"patient"} if "split" in columns else set()
    idle |= {"findings", "impression"} if "report" in columns else set()
    idle |= {"images", "prior", "view"} if settings.images == "none" else set()
    near = {c: meant[c] for c in CONTENTS if meant.get(c) and c not in {*columns, *idle}}
    if near:
        named = {**settings.columns, **near}
        listed = ", ".join(f"{content}: {name}" for content, name in named.items())
        raise UserError(
            f"{path} has a column {next(iter(near.values()))!r}, which is not read under that "
            f"name; say what it is, quotes and all: 'data.columns={{{listed}}}', or rename it"
        )
    return columns


def _plain(name: str) -> str:
    """Take capitals, blanks and signs from a column's name."""
    return re.sub("[^a-z0-9]", "", name.lower())


def _nearest(name: str, header: list[str]) -> str:
    """Find the nearest of the names that a message lists."""
    return difflib.get_close_matches(name, header[:SHOWN], n=1, cutoff=0.0)[0]


def _label_columns(
    path: Path, header: list[str], columns: dict[str, str], catalogue: Catalogue
) -> tuple[str, ...]:
    lacking = [name for name in OBSERVATIONS if name not in header]
    if "labels" not in columns and 0 < len(lacking) < len(OBSERVATIONS):
        catalogue.notes.append(
            f"{path} has {len(OBSERVATIONS) - len(lacking)} of the 14 columns of labels, which are "
            f"not read; the first that it lacks is {lacking[0]!r}"
        )
    return () if lacking or "labels" in columns else OBSERVATIONS


@dataclass
class _Reader:
    """Makes studies of rows."""

    path: Path
    columns: dict[str, str]
    labels: tuple[str, ...]
    settings: ReadSettings
    catalogue: Catalogue
    where: str = ""
    splits_of: dict[str, set[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    lists: int = 0
    undivided: list[tuple[Study, str, str]] = field(default_factory=list)
    moved: int = 0

    def check_columns(self, header: list[str]) -> None:
        """Raise UserError for a column that the table lacks and the settings need."""
        have = f"it has {names_of(header)}"
        header = [name for name in header if name not in self.columns.values()] or header
        texts = {"report", "findings", "impression", "labels"}
        if not texts & set(self.columns) and not self.labels:
            mend = f"name it, as in data.columns={{report: {_nearest('report', header)}}}"
            if sum(map(bool, header)) == 1 < len(header):  # a spreadsheet's title
                mend = "take out the lines above the names of the columns"
            raise UserError(f"{self.path}: no column of reports or labels; {have}; {mend}")
        if self.settings.images != "none" and "images" not in self.columns:
            raise NoImageColumn(
                f"{self.path}: no column of images; {have}; name it, as in data.columns={{images: "
                f"{_nearest('images', header)}}}, or set data.images=none"
            )

    def notes(self) -> list[str]:
        """Write what was made up, what are lists, and patients in several splits."""
        notes = []
        if "split" not in self.columns:
            by = "patient" if "patient" in self.columns else "study"
            moved = f"; {self.moved} studies follow one that shares an image" if self.moved else ""
            notes.append(
                f"{self.path} has no split: a tenth is val and a tenth test, by {by}{moved}"
            )
        if self.lists:
            notes.append(
                f"{self.path}: {self.lists} texts are lists, as pandas writes them, and read as "
                "paragraphs"
            )
        crossing = sorted(name for name, splits in self.splits_of.items() if len(splits) > 1)
        if crossing:
            notes.append(
                f"{self.path}: {len(crossing)} patients have studies in several splits, the first "
                f"is {crossing[0]}; results on them say less"
            )
        return notes

    def add(self, number: int, row: Row) -> None:
        self.wrong = []
        name = self._name(row, "id") if "id" in self.columns else f"row{number}"
        where = f"{self.path.name}: row {number}" + (f" ({name})" if "id" in self.columns else "")
        self.where = where
        patient = self._name(row, "patient") if "patient" in self.columns else ""
        split = self._split(row, patient or name)
        labels = self._labels(row)
        images = self._images(row) if self.settings.images != "none" else ()
        context: dict[str, Any] = {key: self._text(row, key) for key in CONTEXT}
        report, rule = self._report(row, labels)
        if self.wrong:
            self.catalogue.add_broken(where, first_of(self.wrong))
        elif rule:
            self.catalogue.leave_out(rule, split=split)
        elif self.settings.images == "frontal" and not images:
            self.catalogue.leave_out("without a frontal image", split=split)
        else:
            study = Study(name, split, report, labels, images, **context, patient=patient)
            if "split" not in self.columns:
                self.undivided.append((study, where, patient or name))
                return
            self.catalogue.add(study, where)
            if patient:
                self.splits_of.setdefault(patient, set()).add(split)

    def divide(self) -> None:
        """Add the studies of a table without splits; those that share an image share theirs."""
        members = ((by, [image.path for image in study.images]) for study, _, by in self.undivided)
        first = first_of_groups(members)
        for study, where, by in self.undivided:
            split = drawn_split(first[by])
            self.moved += split != study.split
            self.catalogue.add(replace(study, split=split), where)

    def _cell(self, row: Row, content: str) -> Any:
        value = row.get(self.columns[content]) if content in self.columns else None
        return "" if value is None else value

    def _optional(self, row: Row, content: str) -> Any:
        """Return a cell that may be empty, "" for a marker of nothing."""
        value = self._cell(row, content)
        return self.catalogue.read(value, content, self.where, context=content in CONTEXT)

    def _unlisted(self, value: Any, content: str) -> Any:
        try:
            return unlisted(value)
        except ValueError as error:
            self.wrong.append(f"has {value!r} as {content}, {error}; write the text alone")
            return ""

    def _text(self, row: Row, content: str) -> str:
        value = self._cell(row, content) if content == "split" else self._optional(row, content)
        parts = self._unlisted(value, content)
        if isinstance(parts, list):
            value = parts
            if all(part is None or part != part or isinstance(part, str) for part in parts):
                # a blank line between them: a part may end without its stop
                texts = (part for part in parts if isinstance(part, str) and not is_nothing(part))
                value = "\n\n".join(texts)
                self.lists += 1
        if not is_text(value) or "\0" in value:
            fault = "a NUL or no Unicode" if isinstance(value, str) else kind_of(value)
            self.wrong.append(f"has {fault} as {content}; wanted text")
            return ""
        return value.strip()

    def _name(self, row: Row, content: str) -> str:
        value = self._cell(row, content)
        name = str(value) if type(value) in (int, float) else value
        if type(value) is float and not lost_digits(name):
            # pandas writes a column of whole numbers with a gap as floats
            name = whole_number(name)
        if not is_text(name) or is_nothing(name) or lost_digits(name):
            lost = isinstance(name, str) and lost_digits(name)
            fault = LOST_DIGITS if lost else "wanted a name or a whole number"
            self.wrong.append(f"has {content} {value!r}; {fault}")
            return ""
        return name.strip()

    def _split(self, row: Row, by: str) -> str:
        if "split" not in self.columns:
            return drawn_split(by)
        name = self._text(row, "split")
        if name.lower() not in SPLIT_NAMES:
            self.wrong.append(f"has split {name!r}; wanted one of {', '.join(SPLITS)}")
        return SPLIT_NAMES.get(name.lower(), "")

    def _report(self, row: Row, labels: tuple[int, ...] | None) -> tuple[str | None, str]:
        """Read the report, None where labels stand alone, and the rule that leaves the row out."""
        sections = {part for part in ("findings", "impression") if part in self.columns}
        if "report" in self.columns:
            report = self._text(row, "report")
        elif sections:
            cut = ReportSections(self._text(row, "findings"), self._text(row, "impression"))
            report = self.catalogue.report(cut, self.settings.sections)
            if not report:
                return None, WITHOUT[self.settings.sections]
        else:
            report = ""
        if not report and labels is None:
            text = self._cell(row, "report")
            self.wrong.append(f"has an empty report, {text!r}; write one or drop the row")
        return report or None, ""

    def _labels(self, row: Row) -> tuple[int, ...] | None:
        if self.labels:
            ids = cell_classes({name: row.get(name) for name in self.labels}, self.wrong)
            return ids if any(ids or ()) else None
        value = self._optional(row, "labels")
        return listed_classes(self._unlisted(value, "labels") or None, self.wrong)

    def _images(self, row: Row) -> tuple[ImageRef, ...]:
        paths = self._list(row, "images")
        if not paths:
            self.wrong.append("has no image; name one, drop the row or set data.images=none")
            return ()
        views = self._views(row, len(paths))
        frontal = self.settings.images == "frontal"
        refs = [
            ImageRef(self.path.parent / path, view)
            for path, view in zip(paths, views, strict=False)
            if not (frontal and view == "lateral")
        ]
        if not frontal:
            earlier = self._list(row, "prior")
            refs += [ImageRef(self.path.parent / path, "", True) for path in earlier]
        for ref in refs:
            defect = self.catalogue.image_defect(ref.path)
            if defect is not None:
                self.wrong.append(
                    f"has image {str(ref.path)!r}, {defect}; put it there (several are separated "
                    f"by {SEPARATOR!r} or a JSON list), or set data.images=none"
                )
        return tuple(refs)

    def _views(self, row: Row, count: int) -> list[str]:
        names = self._list(row, "view", keep_empty=True)
        names = names * count if len(names) == 1 else names or [""] * count
        views = [view_of_name(name) for name in names]
        odd = [
            name
            for name, view in zip(names, views, strict=True)
            if not (view or is_nothing(name) or name.upper() in POSITIONS)
        ]
        if odd:
            self.wrong.append(
                f"has view {odd[0]!r}; wanted frontal, PA, AP, lateral, LL or nothing"
            )
        elif len(names) != count:
            self.wrong.append(f"has {len(names)} views for {count} images; wanted one for each")
        return views

    def _list(self, row: Row, content: str, *, keep_empty: bool = False) -> list[str]:
        value = self._unlisted(self._optional(row, content), content)
        if isinstance(value, str):
            value = value.split(SEPARATOR) if value.strip() else []
        if keep_empty and isinstance(value, list):
            value = ["" if part is None or part != part else part for part in value]
        if not isinstance(value, list) or not all(is_text(part) for part in value):
            odd = [part for part in value if not is_text(part)] if isinstance(value, list) else []
            halves = bool(odd) and isinstance(odd[0], str)
            fault = f"{odd[0]!r}, which is no Unicode," if halves else kind_of(value)
            self.wrong.append(f"has {fault} as {content}; wanted text or a list of texts")
            return []
        parts = [part.strip() for part in value]
        return parts if keep_empty else [part for part in parts if part]


def _has_table(root: Path) -> bool:
    with suppress(UserError):  # none, or several: which of them is meant nobody knows
        return table_file(root).is_file()
    return False


SOURCE = Source(name="table", load=load_table, holds=_has_table, may_be_file=True, priors=True)
