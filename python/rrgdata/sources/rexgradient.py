"""Studies of ReXGradient-160K: reports in four sections, the images of each study.

    metadata/train_metadata_view_position.json    {study: {...}}, and valid_, test_
    deid_png/<patient>/.../instances/<id>.png     unpacked from deid_png.part00 to part09

A study has `ImagePath` (a list of "../deid_png/...", as seen from metadata/), `ImageViewPosition`
(one of each image), `PatientID`, `Indication`, `Comparison`, `Findings` and `Impression`. Read
from the dataset card of rajpurkarlab/ReXGradient-160K (sections, splits, unpacking) and from a
repository that loads it, f10409/RadHarmony, radharmony/harmonizer/rexgradient/rexgradient.py (files
and keys); the CSV files beside the JSON name no images. The JSON files are read from metadata/ or
from the root itself.

Split: train, valid as val, and the public test. Views: PA, AP and their spelt-out names are
frontal, LATERAL, LAT and LL lateral; all others (UNKNOWN, SUPINE, OBLIQUE, DECUBITUS ...) do not
tell, so their view is "". No prior studies: EditGRPO (appendix F) reads none either, and leaves out
studies of more than six images, which is data.max_images=6.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from rrgclinical.common.errors import UserError
from rrgdata.catalogue import Catalogue, ReadSettings
from rrgdata.problems import parse_json, read_text
from rrgdata.sections import ReportSections
from rrgdata.sources.source import Published, Source
from rrgdata.sources.tables import add_study
from rrgdata.study import ImageRef, Study, view_of_name

FILES = {
    "train": "train_metadata_view_position.json",
    "val": "valid_metadata_view_position.json",
    "test": "test_metadata_view_position.json",
}
SECTIONS = ("Indication", "Comparison", "Findings", "Impression")
PATIENT = "PatientID"
KEYS = frozenset(("ImagePath", "ImageViewPosition", PATIENT, *SECTIONS))
UNPACK = "unpack the parts there (cat deid_png.part* | tar --zstd -x), or set data.images=none"


def load_rexgradient(root: Path, settings: ReadSettings, catalogue: Catalogue) -> None:
    """Add the studies of ReXGradient-160K under `root`.

    UserError where no metadata file is there, one is not JSON, or no patient has a folder in
    deid_png. A study without a list of images, or with one outside deid_png, is broken.
    """
    files = _files(root, catalogue)
    patients: set[str] = set()
    if settings.images != "none":
        if not (root / "deid_png").is_dir():
            raise UserError(f"{root} has no folder deid_png; {UNPACK}")
        patients = set(os.listdir(root / "deid_png"))
    absent: Counter[str] = Counter()
    depth = len((root / "deid_png").parts)
    total = 0
    for split, path in files.items():
        studies = parse_json(read_text(path), str(path), keep=KEYS)
        if not isinstance(studies, dict) or not studies:
            raise UserError(f"{path}: wanted an object of studies; download it again")
        for name, entry in studies.items():
            where = f"{path.name}: {name}"
            total += 1
            refs = _images(root, entry, where, catalogue)
            if refs is None:
                continue
            if settings.images != "none" and any(r.path.parts[depth] not in patients for r in refs):
                absent[split] += 1
                continue
            parts = ReportSections(**{key.lower(): entry.get(key) for key in SECTIONS})
            study = Study(name, split, None, None, refs, patient=str(entry.get(PATIENT) or ""))
            add_study(study, parts, where, settings, catalogue)
    if absent.total() == total:
        raise UserError(f"{root / 'deid_png'} has a folder for none of the patients; {UNPACK}")
    for split, count in absent.items():
        catalogue.leave_out("of patients without a folder in deid_png", count, split=split)


def _files(root: Path, catalogue: Catalogue) -> dict[str, Path]:
    files = {}
    for split, name in FILES.items():
        place = next((f for f in (root / "metadata", root) if (f / name).is_file()), None)
        if place is not None:
            files[split] = place / name
        else:
            catalogue.notes.append(
                f"no {name} in {root / 'metadata'}: the data has no {split} split"
            )
    if not files:
        raise UserError(
            f"{root / 'metadata'} has none of {', '.join(FILES.values())}; download them"
        )
    return files


def _images(
    root: Path, entry: Any, where: str, catalogue: Catalogue
) -> tuple[ImageRef, ...] | None:
    """Return the images of a study, or None where its entry is broken."""
    keys = ("ImagePath", "ImageViewPosition")
    paths, views = map(entry.get, keys) if isinstance(entry, dict) else (None, None)
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        catalogue.add_broken(where, "has no list ImagePath; wanted paths such as ../deid_png/...")
        return None
    if views is None:
        views = [None] * len(paths)
    if not isinstance(views, list) or len(views) != len(paths):
        catalogue.add_broken(where, f"has {len(paths)} images and ImageViewPosition {views!r}")
        return None
    refs = []
    for path, view in zip(paths, views, strict=True):
        inner = path.removeprefix("../")
        parts = Path(inner).parts
        if parts[:1] != ("deid_png",) or len(parts) == 1 or ".." in parts or "\0" in inner:
            catalogue.add_broken(where, f"has image {path!r}; wanted a path in ../deid_png")
            return None
        refs.append(ImageRef(root / inner, view_of_name(str(view).replace("AP AXIAL", "AP"))))
    return tuple(refs)


SOURCE = Source(
    name="rexgradient",
    load=load_rexgradient,
    marks=("metadata/*_metadata_view_position.json", "*_metadata_view_position.json"),
    terms="the data use agreement on its page at the Hugging Face hub",
    published=Published(
        {"train": (140_000, 238_968), "val": (10_000, 17_007), "test": (10_000, 17_029)},
        "all studies of the dataset card",
        "https://huggingface.co/datasets/rajpurkarlab/ReXGradient-160K",
    ),
)
