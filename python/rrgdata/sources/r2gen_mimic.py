"""Studies of R2Gen's MIMIC-CXR: an `annotation.json` in which every entry is one image.

    annotation.json   {"train": [{"id", "report", "image_path": [one], "study_id", "subject_id",
                      "split"}, ...], "val": [...], "test": [...]}
    images/<path>     or files/<path> (MIMIC-CXR-JPG's own folder), or <path> beside the annotation

An entry's id is its image's; a study of three images is three entries with one report. No entry
says which view its image shows, laterals are among them, so every view is "". The list an entry
stands in is its split. The report is R2Gen's, its line wraps joined as R2Gen's tokenizer does;
R2Gen's cleaning and its cut at 100 tokens belong to the text metrics (`rrgclinical`).

Layout: cuhksz-nlp/R2Gen, modules/datasets.py (MimiccxrSingleImageDataset) and
modules/tokenizers.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rrgclinical.common.errors import UserError
from rrgdata.catalogue import Catalogue, ReadSettings
from rrgdata.problems import SPLITS, is_text
from rrgdata.sources.annotation import is_outside, names_subjects, read_annotation
from rrgdata.sources.source import Published, Source
from rrgdata.study import ImageRef, Study


def load_r2gen_mimic(root: Path, settings: ReadSettings, catalogue: Catalogue) -> None:
    """Fill the catalogue with the entries of the annotation under `root`, in its order.

    An entry without id, report or exactly one image, or whose image is missing or outside the
    root, is broken. UserError: a file that is not UTF-8 or not JSON, and unknown splits.
    """
    path, annotation = read_annotation(root, "MIMIC-CXR")
    for split, entries in annotation.items():
        if split not in SPLITS or not isinstance(entries, list):
            raise UserError(
                f"{path}: {split!r} is no split with a list of entries; wanted {', '.join(SPLITS)}"
            )
    base = next((root / name for name in ("images", "files") if (root / name).is_dir()), root)
    for split, entries in annotation.items():
        for index, entry in enumerate(entries):
            where = f"{path.name} {split}[{index}]"
            try:
                study = _study(split, entry, base, settings, catalogue)
            except _Defect as defect:
                name = entry.get("id") if isinstance(entry, dict) else None
                catalogue.add_broken(where if name is None else f"{where} ({name})", str(defect))
            else:
                catalogue.add(study, f"{where} ({study.id})")


class _Defect(Exception):
    """Says what is wrong with an entry."""


def _study(
    split: str, entry: Any, base: Path, settings: ReadSettings, catalogue: Catalogue
) -> Study:
    if not isinstance(entry, dict):
        raise _Defect("is no object; wanted one with id, report and image_path")
    name: Any = entry.get("id")
    report: Any = entry.get("report")
    if not is_text(name) or not name.strip():
        raise _Defect(f"has id {name!r}; wanted the name of its image")
    text = catalogue.read(report, "report", f"{split} ({name})")
    if report is None or not is_text(text):
        raise _Defect("has no text as report; wanted its findings")
    if not text:
        raise _Defect(f"has an empty report; write one or drop the entry: it is {report!r}")
    refs: tuple[ImageRef, ...] = ()
    if settings.images != "none":
        refs = (ImageRef(_image(entry.get("image_path"), base, catalogue), ""),)
    return Study(name, split, report, None, refs, patient=str(entry.get("subject_id") or ""))


def _image(paths: Any, base: Path, catalogue: Catalogue) -> Path:
    if not isinstance(paths, list) or len(paths) != 1 or not is_text(paths[0]) or not paths[0]:
        raise _Defect(f"has image_path {paths!r}; wanted a list of one path")
    full = base / paths[0]
    if is_outside(paths[0]):
        raise _Defect(f"has image {paths[0]!r} outside {base}; wanted a path inside it")
    defect = catalogue.image_defect(full)
    if defect:
        raise _Defect(f"has image {paths[0]!r}, {defect} in {base}; copy it there")
    return full


SOURCE = Source(
    name="r2gen_mimic",
    load=load_r2gen_mimic,
    holds=names_subjects,
    terms="PhysioNet's credentialed access; what is made of the data falls under it too",
    published=Published(
        {"train": (270_790, 270_790), "val": (2_130, 2_130), "test": (3_858, 3_858)},
        "entries of R2Gen's annotation of MIMIC-CXR, an image each",
        "https://github.com/cuhksz-nlp/R2Gen/issues/1",
    ),
)
