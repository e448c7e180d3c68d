"""Studies of PadChest-GR: one frontal radiograph, sentences of findings in English, a prior.

    grounded_reports_20240819.json           a list of studies, each with its `findings`
    master_table.csv                         one row a study and label: `StudyID`, `split`
    Padchest_GR_files/                       the images, 16-bit PNG, here or further down
    PadChest_GR_progression_prior_studies/   optional: images of the studies before

A study has `StudyID`, `ImageID` (a file name), `PreviousStudyID`, `PreviousImageID` (or null) and
`findings`, each with `sentence_en`, `sentence_es`, `abnormal`, `boxes`, `labels`, `locations` and
`progression`. Read from repositories that load it: uzh-dqbm-cmi/RadVLM, radvlm/data/datasets.py,
for the two files and the split, alwaniaayan6-png/ClaimGuard-CXR, v5/data/padchest_gr.py, for keys,
columns and folders. data.prior=last adds the prior image; one that the JSON does not name is taken
from `prior_imageID` of the table. A prior that is itself a study here, neither of the same split
nor of train, is passed over, and counted.
The paper is arXiv 2411.05085; the data set's own page (bimcv.cipf.es/bimcv-projects/padchest-gr)
could not be read.

The report is the English sentences in their order, joined by a blank, each ended by a full stop
where no sign ends it; findings without one are counted. With data.boxes the `boxes` (left, top,
right, bottom, shares of the image) stand before that stop, in each sentence of the entry. There is
no impression. Radiographs are frontal by the paper's selection; of priors it is not said, so their
view is "". Split: train, validation as val, test. The finding labels are PadChest's own, for which
there is no mapping to the 14 observations here.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

from rrgclinical.common.arguments import is_real
from rrgclinical.common.errors import UserError
from rrgclinical.common.spreadsheets import LOST_DIGITS, lost_digits, whole_number
from rrgclinical.grounding import GRID, Box, with_boxes
from rrgclinical.rules import join_lines
from rrgdata.catalogue import Catalogue, ReadSettings, traits_of
from rrgdata.problems import only_file, parse_json, read_text
from rrgdata.sections import ReportSections
from rrgdata.sources.source import Published, Source
from rrgdata.sources.tables import add_study, read_csv
from rrgdata.study import ImageRef, Study

SPLIT_OF = {"train": "train", "validation": "val", "test": "test"}
CURRENT, EARLIER = "Padchest_GR_files", "PadChest_GR_progression_prior_studies"
_ENDED = re.compile(r"""[.!?;:…][)\]}"'”’]*$""")


def load_padchest_gr(root: Path, settings: ReadSettings, catalogue: Catalogue) -> None:
    """Add the studies of PadChest-GR under `root`.

    UserError for a file that is missing or unreadable, for images none of which is there, and for
    data.sections=impression. A study without split, image or sentences is broken.
    """
    if settings.sections == "impression":
        raise UserError("PadChest-GR has no impressions; set data.sections=findings")
    entries, path = _entries(root)
    table, at_odds = _table(root, catalogue)
    read = [entry for entry in entries if isinstance(entry, dict)]
    split_of = {str(e.get("ImageID")): table.get(str(e.get("StudyID")), ("", ""))[0] for e in read}
    files: dict[str, Path] = {}
    if settings.images != "none":
        files = _index(root / CURRENT)
        if not any(image in files for image in split_of):
            raise UserError(
                f"{root / CURRENT} has none of the images of {path.name}; unpack them there, or "
                "set data.images=none"
            )
        # the prior of a study may itself be a study here
        files = _index(root / EARLIER) | files
    passed_over: set[str] = set()
    unread = 0
    for number, entry in enumerate(entries):
        study_id = entry.get("StudyID") if isinstance(entry, dict) else None
        where = f"{path.name}: [{number}]" + (f" ({study_id})" if study_id else "")
        text = _sentences(entry, where, catalogue, boxes=settings.boxes)
        if text is None or str(study_id) in at_odds:
            continue
        split, earlier = table.get(str(study_id), ("", ""))
        name, prior = entry["ImageID"], str(entry.get("PreviousImageID") or earlier)
        if str(study_id) not in table:
            catalogue.add_broken(where, "is not in master_table.csv; download both files again")
        elif split not in SPLIT_OF:
            why = f"has split {split!r} in master_table.csv; wanted one of {', '.join(SPLIT_OF)}"
            catalogue.add_broken(where, why)
        elif settings.images != "none" and name not in files:
            catalogue.add_broken(where, f"has image {name!r}, not found in {root / CURRENT}")
        else:
            refs = [] if settings.images == "none" else [ImageRef(files[name], "frontal")]
            if settings.prior == "last" and split_of.get(prior, split) not in (split, "train"):
                passed_over.add(prior)
            elif prior and settings.prior == "last":
                refs += [ImageRef(files[prior], "", prior=True)] if prior in files else []
                unread += prior not in files
            study = Study(str(study_id), SPLIT_OF[split], None, None, tuple(refs))
            add_study(study, ReportSections(findings=text), where, settings, catalogue)
    catalogue.note_passed_over(passed_over)
    if unread and settings.images == "all":
        catalogue.notes.append(
            f"{root / EARLIER} lacks the prior image of {unread} studies: read without it"
        )


def _entries(root: Path) -> tuple[list[Any], Path]:
    path = only_file(root, "grounded_reports_*.json", "; wanted one, PadChest-GR's reports")
    entries = parse_json(read_text(path), str(path))
    if not isinstance(entries, list) or not entries:
        raise UserError(f"{path}: wanted a list of studies; download it again")
    return entries, path


def _table(root: Path, catalogue: Catalogue) -> tuple[dict[str, tuple[str, str]], set[str]]:
    """Read split and prior image by study, and the studies whose rows disagree on the split."""
    path = root / "master_table.csv"
    if not path.is_file():
        raise UserError(f"{path} not found; it holds the split, unpack master_table.csv.zip there")
    table: dict[str, tuple[str, str]] = {}
    at_odds: set[str] = set()
    for where, cells in read_csv(
        path, ("StudyID", "split"), catalogue, optional=("prior_imageID",)
    ):
        study = whole_number(cells["StudyID"]) or cells["StudyID"].strip()
        if lost_digits(study):
            raise UserError(f"{path.parent / where} has StudyID {study}; {LOST_DIGITS}")
        split = cells["split"].strip()
        first = table.setdefault(study, (split, cells.get("prior_imageID", "").strip()))
        if first[0] != split and study not in at_odds:
            at_odds.add(study)
            table[study] = ("", "")
            catalogue.add_broken(f"{where} ({study})", f"has split {split!r} after {first[0]!r}")
    return table, at_odds


def _index(folder: Path) -> dict[str, Path]:
    """Find the files beneath a folder by their names."""
    return {
        name: Path(place) / name for place, _, names in sorted(os.walk(folder)) for name in names
    }


def _sentences(entry: Any, where: str, catalogue: Catalogue, *, boxes: bool) -> str | None:
    """Join the English sentences of a study, with `boxes` or without; None of a broken entry."""
    findings = entry.get("findings") if isinstance(entry, dict) else None
    if not isinstance(findings, list) or not all(isinstance(f, dict) for f in findings):
        catalogue.add_broken(where, "has no list of findings; wanted objects with sentence_en")
        return None
    if not entry.get("StudyID") or not isinstance(entry.get("ImageID"), str):
        catalogue.add_broken(where, "has no StudyID or ImageID; download the file again")
        return None
    written = [f.get("sentence_en") for f in findings]
    for _ in range(written.count(None)):
        catalogue.nothing.count("null", "sentence_en", where)
    sentences = [catalogue.read(sentence, "sentence_en", where) for sentence in written]
    if not all(isinstance(sentence, str) for sentence in sentences):
        catalogue.add_broken(where, "has a sentence_en that is no text")
        return None
    catalogue.wording.note(*traits_of(*sentences))
    joined = [join_lines(sentence) for sentence in sentences]
    if boxes:
        of = [_percent(finding.get("boxes") or []) for finding in findings]
        if None in of:
            catalogue.add_broken(where, "has a box that is no [left, top, right, bottom] in [0, 1]")
            return None
        joined = [with_boxes(s, b or []) for s, b in zip(joined, of, strict=True)]
    return " ".join(s if _ENDED.search(s) else f"{s}." for s in joined if s)


def _percent(written: Any) -> list[Box] | None:
    """Round boxes, shares of the image, outward to percent; None where one is none."""
    boxes = list[Box]()
    for box in written if isinstance(written, list) else [written]:
        whole = isinstance(box, list) and len(box) == 4 and all(map(is_real, box))
        if not whole or not (0 <= box[0] < box[2] <= 1 and 0 <= box[1] < box[3] <= 1):
            return None
        low, high = [math.floor(GRID * x) for x in box[:2]], [math.ceil(GRID * x) for x in box[2:]]
        boxes.append((low[0], low[1], high[0], high[1]))
    return boxes


SOURCE = Source(
    name="padchest_gr",
    load=load_padchest_gr,
    marks=("grounded_reports_*.json",),
    priors=True,
    terms="BIMCV's agreement",
    published=Published(
        {"train+val": (3_640, None), "test": (915, None), "all": (4_555, None)},
        "all studies (Castro et al.); train+val and test by EditGRPO, table 3",
        "https://arxiv.org/abs/2411.05085",
    ),
)
