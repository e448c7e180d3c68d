"""Put predictions beside their references by id, and say what is left on either side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rrgclinical.common.errors import UserError
from rrgclinical.scorecard.read import PREDICTION_ID, REFERENCE_ID, Reports

_NAMED = 3
"""Ids that a line names; it counts the others."""


@dataclass(frozen=True)
class Pairs:
    """R studies: ids, one or several references each, and each system's report in that order.

    labels: int8 `[R, 14]` class ids that came with the references, None without. notes: lines
    that a reader must not miss. patients: that of each study, "" where one is unknown. groups:
    further sub-groups of the card: name, rule, and members, bool `[R]`.
    """

    ids: list[str]
    references: list[list[str]]
    systems: dict[str, list[str]]
    labels: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)
    patients: Sequence[str] = ()
    groups: Sequence[tuple[str, str, np.ndarray]] = ()


def pair_reports(
    predictions: Mapping[str, Reports],
    references: Reports,
    *,
    by: str = "id",
    missing: str = "stop",
    extra: str = "stop",
) -> Pairs:
    """Join the predictions of each system with the references.

    Args:
        predictions: by system.
        references: of the studies, whose order the pairs have.
        by: "id", or "row" for the order in the files, which must be of equal length.
        missing: "stop", or "empty" to score an empty report for a reference without prediction.
        extra: "stop", or "leave_out" for a prediction without reference.

    Raises:
        UserError: ids that only one side has, files without ids, or of different length.
    """
    files = [references, *predictions.values()]
    notes = list(dict.fromkeys(note for file in files for note in file.notes))
    systems = {}
    for name, reports in predictions.items():
        texts = [text for (text,) in reports.texts]
        if by == "row" or {f.path.suffix.lower() for f in (reports, references)} == {".txt"}:
            _check_rows(reports, references)
        else:
            texts = _by_id(name, reports, references, missing, extra, notes)
        empty = [i for i, text in enumerate(texts) if not text.strip()]
        if empty:
            shown = _named([_id(references, i) for i in empty])
            notes.append(f"{name}: {len(empty)} of {len(texts)} reports are empty ({shown}).")
        systems[name] = texts
    ids = [_id(references, i) for i in range(len(references.texts))]
    both = zip(ids, references.texts, strict=True)
    blank = [i for i, texts in both if texts and not "".join(texts).strip()]
    if blank:
        notes.append(f"{len(blank)} of {len(ids)} references are empty ({_named(blank)}).")
    return Pairs(ids, references.texts, systems, references.labels, notes, references.patients)


def _by_id(
    name: str, reports: Reports, references: Reports, missing: str, extra: str, notes: list[str]
) -> list[str]:
    for file, setting in ((reports, PREDICTION_ID), (references, REFERENCE_ID)):
        if file.ids is None:
            raise UserError(
                f"{file.path} has no ids; its columns are {file.columns}: name that of the ids "
                f"with {setting}, or join the files by their order with eval.join=row"
            )
    assert reports.ids is not None and references.ids is not None
    written = {i: text for i, (text,) in zip(reports.ids, reports.texts, strict=True)}
    ids = set(references.ids)
    lacking = [i for i in references.ids if i not in written]
    beyond = [i for i in reports.ids if i not in ids]
    bare = {i.lstrip("0"): i for i in beyond if i.isdigit()}
    if shorn := next((i for i in lacking if i.isdigit() and i.lstrip("0") in bare), None):
        raise UserError(
            f"{reports.path} has the id {bare[shorn.lstrip('0')]!r}, {references.path} {shorn!r}: "
            "its zeros are lost; write the column as text where the file was made"
        )
    if len(lacking) == len(ids):
        raise UserError(
            f"no id of {reports.path} is in {references.path}: {_named(reports.ids)} against "
            f"{_named(references.ids)}; name the columns with {PREDICTION_ID} and {REFERENCE_ID}"
        )
    if lacking and missing == "stop":
        raise UserError(
            f"{name}: {len(lacking)} of {len(ids)} references in {references.path} have no "
            f"prediction in {reports.path} ({_named(lacking)}); write them, or count each as an "
            "empty report with eval.missing=empty"
        )
    if beyond and extra == "stop":
        raise UserError(
            f"{name}: {len(beyond)} of {len(written)} predictions in {reports.path} have no "
            f"reference in {references.path} ({_named(beyond)}); add it, or leave them out with "
            "eval.extra=leave_out"
        )
    _check_other_ids(reports, references)
    if reports.id_column:
        line = f"Joined by the column {reports.id_column!r}"
        if reports.id_column != references.id_column:
            line += f" of {reports.path} and {references.id_column!r} of {references.path}"
        if f"{line}." not in notes:
            notes.append(f"{line}.")
    if lacking:
        shown = f"{len(lacking)} of {len(ids)} references have no prediction"
        notes.append(f"{name}: {shown} and count as empty reports ({_named(lacking)}).")
    if beyond:
        notes.append(
            f"{name}: {len(beyond)} predictions without reference are left out ({_named(beyond)})."
        )
    return [written.get(i, "") for i in references.ids]


def _check_other_ids(reports: Reports, references: Reports) -> None:
    """Refuse ids that are equal where another usual column of ids says they are others."""
    for column in reports.named.keys() & references.named.keys():
        mine, theirs = reports.named[column], references.named[column]
        differ = [i for i in theirs if i in mine and not mine[i] & theirs[i]]
        if differ:
            raise UserError(
                f"{reports.path} and {references.path} differ in {column!r} for {len(differ)} ids "
                f"({_named(differ)}) joined by {reports.id_column!r}; name the columns that join "
                f"them with {PREDICTION_ID} and {REFERENCE_ID}"
            )


def _check_rows(reports: Reports, references: Reports) -> None:
    if len(reports.texts) != len(references.texts):
        raise UserError(
            f"{reports.path} has {len(reports.texts)} reports, {references.path} "
            f"{len(references.texts)}; rows can be joined in files of equal length only: write an "
            "empty one where a report is missing"
        )
    both = reports.ids is not None and references.ids is not None
    if both and reports.ids != references.ids:
        raise UserError(
            f"{reports.path} and {references.path} have ids in another order; leave out "
            "eval.join=row and they are joined by id"
        )


def _id(references: Reports, row: int) -> str:
    return str(row) if references.ids is None else references.ids[row]


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return ", ".join(map(repr, ids[:_NAMED])) + more
