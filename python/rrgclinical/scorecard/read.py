"""Read reports and labels from CSV, TSV, JSONL and JSON files by column."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError
from rrgclinical.common.nothing import NothingRead, is_nothing
from rrgclinical.common.spreadsheets import whole_number
from rrgclinical.labels import OBSERVATIONS, class_of_cell
from rrgclinical.scorecard.rows import Row, read_rows, require_length

IDS = ("id", "study_id", "image_id", "uid")
CAPTIONS = ("caption", "Report Impression")  # of COCO's files, and of CheXbert's
WRITTEN = ("generated", "generated_report", "candidate", "hypothesis")
PREDICTIONS = ("report", "prediction", *WRITTEN, *CAPTIONS)
FINDINGS, IMPRESSION = "findings", "impression"
GIVEN = ("reference", "references", "reference_report", "ground_truth", "report")
REFERENCES = (*GIVEN, FINDINGS, *CAPTIONS)
SYSTEM, SPLIT = "system", "split"
PATIENTS = ("patient", "patient_id", "subject_id")
# Settings that name the column of ids, for lines of errors.
PREDICTION_ID, REFERENCE_ID = "eval.prediction_id_column", "eval.reference_id_column"


@dataclass(frozen=True)
class Columns:
    """Names of a file's columns; "" takes the usual ones (`IDS`, `PREDICTIONS`, `REFERENCES`).

    id is the column of ids in every file; prediction_id and reference_id name it in one kind alone.
    """

    id: str = ""
    prediction: str = ""
    reference: str = ""
    labels: str = ""
    prediction_id: str = ""
    reference_id: str = ""


@dataclass(frozen=True)
class Reports:
    """The reports of one file, one or several for an id.

    ids: None where the file names none. labels: int8 `[R, 14]` class ids, None without. notes:
    lines that say what was not taken as it stands. id_column: that of the ids, "" without;
    named: by usual column of ids the values that each id has there, none where one was asked for.
    columns: those of the file, as a line of an error names them. patients: that of each id, ""
    where one is unknown.
    """

    path: Path
    ids: list[str] | None
    texts: list[list[str]]
    labels: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    id_column: str = ""
    named: Mapping[str, Mapping[str, set[str]]] = field(default_factory=dict)
    columns: str = ""
    patients: Sequence[str] = ()


def read_predictions(path: str | Path, columns: Columns | None = None) -> dict[str, Reports]:
    """Read the reports of each system of a file.

    A column `system` parts the rows; without one there is one system, of the file's name. A report
    that says that nothing is there, as NA, is an empty one (`rrgclinical.common.nothing`), and a
    note counts them.
    Raises UserError for a file that cannot be read, a column that is absent, an id twice, or an
    id in some rows only.
    """
    path, columns = Path(path), columns or Columns()
    rows, notes = read_rows(path, None, {*IDS, columns.prediction_id or columns.id or IDS[0]})
    text = _column(path, rows, columns.prediction, PREDICTIONS, "eval.prediction_column")
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(_name(row, SYSTEM) or path.stem, []).append(row)
    systems = {}
    for name, part in parts.items():
        ids, column, named = _ids(path, part, columns.prediction_id or columns.id, PREDICTION_ID)
        if ids is not None and len(set(ids)) != len(ids):
            twice = Counter(ids).most_common(1)[0][0]
            where = [row.where for row, i in zip(part, ids, strict=True) if i == twice]
            raise UserError(
                f"{path}: id {twice!r} stands twice ({', '.join(where[:3])}), and "
                f"{len(ids) - len(set(ids))} rows repeat an id; keep one prediction an id, or tell "
                f"systems apart by a column {SYSTEM!r}"
            )
        nothing = NothingRead()
        texts = [[_text(row, text, nothing)] for row in part]
        lines = (*notes, *(f"{name}: {line}." for line in nothing.lines()))
        systems[name] = Reports(path, ids, texts, None, lines, column, named, _listed(rows))
    return systems


def read_systems(words: Sequence[str], columns: Columns) -> dict[str, Reports]:
    """Read the systems of several files, each word being FILE or NAME=FILE.

    Raises UserError as `read_predictions`, and for two systems of one name.
    """
    systems: dict[str, Reports] = {}
    for word in words:
        name, equals, path = ("", "", word) if Path(word).exists() else word.partition("=")
        if not equals:
            name, path = "", word
        parts = read_predictions(path, columns)
        if name in parts:
            parts = {name: parts[name]}
        elif name:
            alone = len(parts) == 1
            parts = {name if alone else f"{name}: {one}": of for one, of in parts.items()}
        for one, reports in parts.items():
            if one in systems:
                raise UserError(f"two systems are called {one!r}; name one NAME={path}")
            systems[one] = reports
    return systems


def read_references(
    path: str | Path,
    columns: Columns | None = None,
    *,
    split: str | None = None,
    split_column: bool = False,
    want_labels: bool | None = None,
) -> Reports:
    """Read the reference reports of a file, and its labels where it has the columns.

    Rows of one id are several references of it; equal ones count once, null is none, and so is a
    blank one, or one that says that nothing is there, where the id has another (notes count them).
    `split` is read of a file of splits, as R2Gen's annotation, and with split_column of a column
    `split`. want_labels: None takes labels where there are any, False looks for none, True wants
    them.

    Raises UserError as `read_predictions`, and for labels that only some rows have, that differ
    in one id, or that are no class.
    """
    path, columns = Path(path), columns or Columns()
    rows, notes = read_rows(path, split, {*IDS, columns.reference_id or columns.id or IDS[0]})
    if split_column and _usual(rows, [SPLIT]):
        rows = _of_split(path, rows, split)
    labelled = want_labels is not False and _has_labels(path, rows, columns.labels)
    if want_labels and not labelled:
        raise UserError(
            f"{path} has no labels; wanted the 14 CheXpert columns or a column of lists named by "
            f"eval.labels_column; its columns are {_listed(rows)}"
        )
    text = columns.reference
    if text or not labelled or _usual(rows, REFERENCES):
        text = _column(path, rows, text, REFERENCES, "eval.reference_column", first=True)
        line = f"{path}: references are the column {text!r}"
        if not columns.reference and text == FINDINGS and _usual(rows, [IMPRESSION]):
            line += (
                f" alone; {IMPRESSION!r} is not read, and a column that holds both is named by "
                "eval.reference_column"
            )
        notes += (f"{line}.",)
    ids, column, named = _ids(path, rows, columns.reference_id or columns.id, REFERENCE_ID)
    nothing = NothingRead()
    texts_of: dict[str, list[str]] = {}
    labels: dict[str, list[int]] = {}
    patients: dict[str, str] = {}
    column_of_patients = next(iter(_usual(rows, PATIENTS)), "")
    for number, row in enumerate(rows):
        key = str(number) if ids is None else ids[number]
        texts_of.setdefault(key, []).extend(_texts(row, text, nothing) if text else [])
        patient = _name(row, column_of_patients)
        if patients.setdefault(key, patient) != patient:
            raise UserError(f"{row.where}: the patient of id {key!r} differs from its other row's")
        if labelled:
            mine = _labels(row, columns.labels)
            if labels.setdefault(key, mine) != mine:
                raise UserError(
                    f"{row.where}: the labels of id {key!r} differ from its other row's"
                )
    array = np.array([labels[key] for key in texts_of], dtype=np.int8) if labelled else None
    notes += tuple(f"references: {line}." for line in nothing.lines())
    of_ids = [(texts, [text for text in texts if text.strip()]) for texts in texts_of.values()]
    # each once, and a blank one only where there is no other
    references = [list(dict.fromkeys(whole)) or texts[:1] for texts, whole in of_ids]
    if blank := sum(len(texts) - len(whole) for texts, whole in of_ids if whole):
        notes += (f"{path}: {blank} blank references, of ids that have others, count for none.",)
    keys = None if ids is None else list(texts_of)
    of_each = list(patients.values())
    return Reports(path, keys, references, array, notes, column, named, _listed(rows), of_each)


def _of_split(path: Path, rows: Sequence[Row], split: str | None) -> list[Row]:
    column = _column(path, rows, SPLIT, (), "")
    there = list(dict.fromkeys(_cell(row, column) for row in rows))
    if split not in there:
        listed = ", ".join(map(repr, there[:5]))
        raise UserError(f"{path} has no row of the split {split!r}; its column {SPLIT!r}: {listed}")
    return [row for row in rows if _cell(row, column) == split]


def _usual(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    return [name for name in names if any(name in row for row in rows)]


def _listed(rows: Sequence[Row]) -> str:
    return ", ".join(dict.fromkeys(name for row in rows for name in row)) or "none"


def _column(
    path: Path,
    rows: Sequence[Row],
    chosen: str,
    usual: Sequence[str],
    setting: str,
    *,
    first: bool = False,
) -> str:
    """Choose the column that was asked for, or the usual one that the file has.

    first: of several usual ones the first counts; otherwise they are refused.
    """
    there = _usual(rows, [chosen] if chosen else usual)
    if not there:
        names = list(dict.fromkeys(name for row in rows for name in row))
        near = (difflib.get_close_matches(n, names, n=1) for n in ([chosen] if chosen else usual))
        nearest = next((match[0] for match in near if match), None)
        hint = f"; did you mean {setting}={nearest}?" if nearest else f"; name it with {setting}"
        choices = repr(chosen) if chosen else " or ".join(map(repr, usual))
        raise UserError(f"{path} has no column {choices}; it has {_listed(rows)}{hint}")
    if len(there) > 1 and not first:
        raise UserError(
            f"{path} has the columns {' and '.join(map(repr, there))}; name one with {setting}"
        )
    lacking = next((row for row in rows if there[0] not in row), None)
    if lacking is not None:
        raise UserError(f"{lacking.where} has no {there[0]!r}; it has {', '.join(lacking)}")
    return there[0]


def _ids(
    path: Path, rows: Sequence[Row], chosen: str, setting: str
) -> tuple[list[str] | None, str, dict[str, dict[str, set[str]]]]:
    """The ids, their column, and what `Reports.named` holds."""
    usual = _usual(rows, IDS)
    if not chosen and not usual:
        return None, "", {}
    column = _column(path, rows, chosen, IDS, setting, first=True)
    ids = _whole([_name(row, column) for row in rows])
    if "" in ids:
        row = rows[ids.index("")]
        written = _cell(row, column)
        shown = f", {written!r}" if written else ""
        raise UserError(f"{row.where} has an empty {column!r}{shown}; give it an id")
    named: dict[str, dict[str, set[str]]] = {name: {} for name in ([] if chosen else usual)}
    for name, values in named.items():
        for key, value in zip(ids, _whole([_name(row, name) for row in rows]), strict=True):
            if value:
                values.setdefault(key, set()).add(value)
    return ids, column, named


def _whole(ids: list[str]) -> list[str]:
    """Write ids that pandas made floats, as "50414267.0", as the whole numbers that they were.

    A column in which one is no whole number, or two would become equal, stays as it is.
    """
    if not any(i.endswith(".0") for i in ids):
        return ids
    numbers = [whole_number(i) for i in ids if i]
    if None in numbers or len(set(numbers)) < len({i for i in ids if i}):
        return ids
    return [whole_number(i) or "" if i else "" for i in ids]


def _cell(row: Row, column: str) -> str:
    value = row.get(column)
    return "" if value is None else str(value).strip()


def _name(row: Row, column: str) -> str:
    """Return the name in a cell, "" for a marker of nothing: pandas writes a missing one as nan."""
    name = _cell(row, column)
    return "" if is_nothing(name) else name


def _text(row: Row, column: str, nothing: NothingRead) -> str:
    """Return a report as written, "" for null, NaN and a marker of nothing, which is counted."""
    value = row[column]
    value = value[0] if isinstance(value, list) and len(value) == 1 else value  # pycocoevalcap's
    read = nothing.read(value, column, row.where)
    if not isinstance(read, str):
        raise UserError(f"{row.where}: {column!r} is a {type(value).__name__}; wanted a report")
    require_length(row.where, repr(column), read)
    return value if read or (isinstance(value, str) and not value.strip()) else ""


def _texts(row: Row, column: str, nothing: NothingRead) -> list[str]:
    value = row[column]
    if value is None:
        return []
    if value != value:
        nothing.read(value, column, row.where)
        return []
    if not isinstance(value, list):
        return [_text(row, column, nothing)]
    if not value:
        raise UserError(f"{row.where}: {column!r} is an empty list; wanted a reference")
    cells = (Row({column: t}, row.where) for t in value if t is not None and t == t)
    return [_text(cell, column, nothing) for cell in cells]


def _has_labels(path: Path, rows: Sequence[Row], chosen: str) -> bool:
    if chosen:
        _column(path, rows, chosen, (), "eval.labels_column")
        return True
    # a row that lacks what others have is refused where it is read
    lacking = [name for name in OBSERVATIONS if not any(name in row for row in rows)]
    if not lacking:
        return True
    if len(lacking) < len(OBSERVATIONS):
        raise UserError(
            f"{path} has {len(OBSERVATIONS) - len(lacking)} of the 14 label columns and lacks "
            f"{', '.join(lacking)}; add them, or read labels in the reports with eval.truth=report"
        )
    return False


def _labels(row: Row, column: str) -> list[int]:
    if not column:
        return [_chexpert(row, name) for name in OBSERVATIONS]
    value = row[column]
    if isinstance(value, str):
        try:
            value = json_reader.parse(value)
        except ValueError as error:
            raise UserError(f"{row.where}: {column!r} is no JSON list ({error})") from error
    forms = "14 class ids (0 blank, 1 positive, 2 negative, 3 uncertain) or names of findings"
    if not isinstance(value, list):
        raise UserError(f"{row.where}: {column!r} is {value!r}; wanted a list of {forms}")
    if all(isinstance(name, str) for name in value):
        if unknown := [name for name in value if name not in OBSERVATIONS]:
            near = difflib.get_close_matches(unknown[0], OBSERVATIONS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UserError(f"{row.where}: {unknown[0]!r} is none of the 14 observations{hint}")
        return [int(name in value) for name in OBSERVATIONS]
    classes = [int(c) for c in value if type(c) is int and 0 <= c <= 3]
    if len(classes) != len(value) or len(classes) != len(OBSERVATIONS):
        raise UserError(f"{row.where}: {column!r} is {value}; wanted {forms}")
    return classes


def _chexpert(row: Row, name: str) -> int:
    if name not in row:
        raise UserError(f"{row.where} has no {name!r}, which other rows have; write it, or null")
    identity = class_of_cell(row[name])
    if identity is None:
        raise UserError(
            f"{row.where}: {name} is {row[name]!r}; wanted 1 positive, 0 negative, -1 uncertain or "
            "blank"
        )
    return identity
