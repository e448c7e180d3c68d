"""Studies in R2Gen's layout of IU X-Ray: `annotation.json` and images; the phantom's too.

    annotation.json   {"train": [{"id", "report", "image_path": [...]}, ...], "val", "test"}
    images/<path>     or <path> beside annotation.json
    sections.jsonl    optional, per line {"id": "CXRnnn", "indication", "technique",
                      "comparison"}, joined on the part of the study id before the first underscore

Entries may add `views` (one of VIEWS per image), `indication`, `technique`, `comparison` (which win
over sections.jsonl) and `labels` (14 class ids 0..3). Where there are no views the first image is
taken as the frontal and the others as laterals, which is how R2Gen ordered IU X-Ray. The
list an entry stands in is its split: published files disagree with their own `split` keys, so that
key is not read, nor is any other.
"""

from __future__ import annotations

import os.path
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rrgclinical.common.errors import UserError
from rrgdata.catalogue import Catalogue, ReadSettings
from rrgdata.problems import SPLITS, check_file, first_of, is_text, kind_of, parse_json, read_text
from rrgdata.sources.source import Published, Source
from rrgdata.sources.tables import CONTEXT, json_lines, listed_classes
from rrgdata.study import ImageRef, Study

VIEWS = ("frontal", "lateral", "prior frontal", "prior lateral")
HEAD = 1 << 16


def read_entries(
    root: Path,
    settings: ReadSettings,
    catalogue: Catalogue,
    *,
    layout: str,
    folders: tuple[str, ...],
    one_image: bool = False,
) -> None:
    """Read R2Gen's annotation by split, in the file's order.

    folders: that the images may be in; the first that is there is taken.
    one_image: an entry has one, and does not say which view it shows.

    Broken studies are noted with split, index and id: missing keys, empty reports, duplicate ids,
    labels outside 0..3, and, unless `settings.images` is "none", images that are missing, empty or
    outside the root. UserError: files that are not UTF-8 or not JSON, and unknown splits.
    """
    path = root / "annotation.json"
    if not path.is_file():
        raise UserError(f"{path} not found; wanted a directory in R2Gen's {layout} layout")
    annotation = parse_json(read_text(path), str(path))
    if not isinstance(annotation, dict) or not annotation:
        raise UserError(f"{path}: wanted an object with the splits {', '.join(SPLITS)}")
    problems = []
    for split, entries in annotation.items():
        if split not in SPLITS:
            problems.append(f"split {split!r} is unknown; wanted {', '.join(SPLITS)}")
        elif not isinstance(entries, list):
            problems.append(f"split {split!r} holds {kind_of(entries)}; wanted a list of studies")
    check_file(path, problems)
    sections = _sections(root / "sections.jsonl")
    base = next((root / name for name in folders if (root / name).is_dir()), root)
    for split, entries in annotation.items():
        catalogue.studies[split] = []
        for index, entry in enumerate(entries):
            where = f"{path.name}: {split}[{index}]"
            _Entry(where, base, settings.images, sections, catalogue, one_image).read(split, entry)


@dataclass
class _Entry:
    """One entry of the annotation, and what is wrong with it."""

    where: str
    base: Path
    images: str
    sections: dict[str, dict[str, str]]
    catalogue: Catalogue
    one_image: bool
    wrong: list[str] = field(default_factory=list)

    def read(self, split: str, entry: Any) -> None:
        study = self._study(split, entry)
        if study is not None:
            self.catalogue.add(study, self.where)
        else:
            self.catalogue.add_broken(self.where, first_of(self.wrong))

    def _study(self, split: str, entry: Any) -> Study | None:
        if not isinstance(entry, dict):
            self.wrong.append(f"is {kind_of(entry)}; wanted an object with id and report")
            return None
        needed = ["id", "report"] + (["image_path"] if self.images != "none" else [])
        missing = [key for key in needed if key not in entry]
        if missing:
            self.wrong.append(f"lacks {', '.join(missing)}; it has {', '.join(entry)}")
            return None
        name = self._id(entry["id"])
        report = self._report(entry["report"])
        labels = listed_classes(entry.get("labels"), self.wrong)
        refs = () if self.images == "none" else self._images(entry)
        context = self._context(entry, name)
        if self.wrong:
            return None
        patient = str(entry.get("subject_id") or "")
        return Study(name, split, report, labels, refs, **context, patient=patient)

    def _id(self, value: Any) -> str:
        name = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not is_text(name) or not name.strip():
            self.wrong.append(f"has id {value!r}; wanted a name")
            return ""
        self.where = f"{self.where} ({name})"
        return name

    def _report(self, value: Any) -> str:
        if value == value and not is_text(value):
            what = "a string that is not Unicode" if isinstance(value, str) else kind_of(value)
            self.wrong.append(f"has {what} as report; wanted text")
        elif not self.catalogue.read(value, "report", self.where):
            self.wrong.append(f"has an empty report; write one or drop the study: it is {value!r}")
        return str(value)

    def _images(self, entry: dict[str, Any]) -> tuple[ImageRef, ...]:
        paths = entry["image_path"]
        good = isinstance(paths, list) and paths and all(is_text(p) and p for p in paths)
        if not good or (self.one_image and len(paths) > 1):
            size = "one path" if self.one_image else "paths"
            self.wrong.append(f"has image_path {paths!r}; wanted a list of {size}")
            return ()
        views = entry.get("views", ["frontal", *["lateral"] * (len(paths) - 1)])
        if self.one_image:
            views = [""]
        if not isinstance(views, list) or len(views) != len(paths):
            self.wrong.append(f"has views {views!r} for {len(paths)} images; wanted one for each")
            return ()
        refs = []
        for path, view in zip(paths, views, strict=True):
            if view not in VIEWS and not self.one_image:
                self.wrong.append(f"has view {view!r}; wanted one of {', '.join(VIEWS)}")
            elif self.images == "all" or view in ("frontal", ""):
                full = self._image(path)
                if full is not None:
                    earlier = view.startswith("prior ")
                    refs.append(ImageRef(full, view.removeprefix("prior "), earlier))
        if self.images == "frontal" and not {"frontal", ""} & set(views):
            self.wrong.append(f"has no frontal image among {views}; read all views")
        return tuple(refs)

    def _image(self, path: str) -> Path | None:
        full = self.base / path
        if os.path.isabs(path) or os.path.normpath(path).split(os.sep)[0] == "..":
            self.wrong.append(f"has image {path!r} outside {self.base}; wanted a path inside it")
            return None
        defect = self.catalogue.image_defect(full)
        if defect is None:
            return full
        mend = "copy it again"
        if defect == "not found":
            mend = "put it there, or set data.images=none"
        self.wrong.append(f"has image {path!r}, {defect} in {self.base}; {mend}")
        return None

    def _context(self, entry: dict[str, Any], name: str) -> dict[str, Any]:
        sections = self.sections.get(name.split("_")[0], {})
        out = {}
        for key in CONTEXT:
            value = entry.get(key)
            value = sections.get(key) if value is None else value
            value = self.catalogue.read(value, key, self.where, context=True)
            if not is_text(value):
                self.wrong.append(f"has {kind_of(value)} as {key}; wanted text")
            out[key] = value if is_text(value) else ""
        return out


def _sections(path: Path) -> dict[str, dict[str, str]]:
    if not path.is_file():
        return {}
    problems = []
    out: dict[str, dict[str, str]] = {}
    for number, row in json_lines(path):
        if not is_text(row.get("id")):
            problems.append(f"line {number} has no id; wanted an object with one")
        elif row["id"] in out:
            problems.append(f"line {number} repeats the id {row['id']!r}; ids must be unique")
        else:
            out[row["id"]] = row
    check_file(path, problems)
    return out


def names_subjects(root: Path) -> bool | None:
    """Tell whether the root's annotation has subjects, as only MIMIC's; None: no file.

    R2Gen's two annotations have one name; a subject is looked for at the beginning of the file.
    """
    path = root / "annotation.json"
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        return b'"subject_id"' in stream.read(HEAD)


SOURCE = Source(
    name="iu_xray",
    load=partial(read_entries, layout="IU X-Ray", folders=("images",)),
    holds=lambda root: names_subjects(root) is False,
    priors=True,
    terms="public (Open-i); cite the source",
    published=Published(
        {"train": (2_069, None), "val": (296, None), "test": (590, None)},
        "entries of R2Gen's annotation of IU X-Ray",
        "https://github.com/cuhksz-nlp/R2Gen",
    ),
)
