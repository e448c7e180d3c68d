"""Guesses the layout of a data set by the files that only this layout has."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from rrgclinical.common.errors import UserError
from rrgclinical.common.files import require_end
from rrgdata.load import OF_ONE_FILE, SOURCES
from rrgdata.sources.own_rows import table_file

MARKS = {
    "chexpert_plus": ("df_chexpert_plus_*.csv",),
    "mimic_cxr": tuple(f"{above}mimic-cxr-2.*-split.csv*" for above in ("", "*/", "*/*/")),
    "nih": ("labels.csv", "Data_Entry_2017*.csv"),
    "open_i": ("ecgen-radiology", "NLMCXR_reports"),
    "padchest_gr": ("grounded_reports_*.json",),
    "rexgradient": ("metadata/*_metadata_view_position.json", "*_metadata_view_position.json"),
}
"""Files of a layout, by source. An annotation.json lies beside several, so it counts behind them,
and a table of one's own last."""
HEAD = 1 << 16


def guess_source(root: Path) -> str:
    """Return the one source whose layout is found in `root`.

    Raises UserError, one line, where there is none or more than one, or no such path.
    """
    if not root.exists():
        raise UserError(f"{root} does not exist; wanted a data set: a directory or a table")
    ask = "name it by data.source=..."
    require_end(root)
    if root.is_file():
        return OF_ONE_FILE[0]
    matches = [name for name, marks in MARKS.items() if any(any(root.glob(mark)) for mark in marks)]
    if not matches and (root / "annotation.json").is_file():
        return _source_of_annotation(root / "annotation.json")
    if not matches:
        with suppress(UserError):  # none, or several: which of them is meant nobody knows
            table_file(root)
            return OF_ONE_FILE[0]
        raise UserError(
            f"no layout is recognised in {root}; {ask}, one of {', '.join(sorted(SOURCES))}"
        )
    if len(matches) > 1:
        raise UserError(f"{root} looks like {' and '.join(matches)}; {ask}")
    return matches[0]


def _source_of_annotation(path: Path) -> str:
    """Tell R2Gen's two annotations apart: only MIMIC's entries have a subject."""
    with path.open("rb") as stream:
        return "r2gen_mimic" if b'"subject_id"' in stream.read(HEAD) else "iu_xray"
