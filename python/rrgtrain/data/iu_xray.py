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
from pathlib import Path
from typing import Any

from rrgclinical.labels import OBSERVATIONS
from rrgtrain.data.problems import SPLITS, Problems, is_text, parse_json, read_text
from rrgtrain.data.study import ImageRef, Study
from rrgtrain.errors import UserError

VIEWS = ("frontal", "lateral", "prior frontal", "prior lateral")
SECTIONS = ("indication", "technique", "comparison")


def load_iu_xray(root: Path, images: str) -> dict[str, list[Study]]:
    """Every study under `root`, by split, in the file's order.

    UserError tells the first defect with its split, index and id, and how many more there are:
    files that are not UTF-8 or not JSON, unknown splits, missing keys, empty reports, duplicate
    ids, labels outside 0..3, and, unless `images` is "none", images that are missing, empty or
    outside the root.
    """
    path = root / "annotation.json"
    if not path.is_file():
        raise UserError(f"{path} not found; wanted a directory in R2Gen's IU X-Ray layout")
    annotation = parse_json(read_text(path), str(path))
    if not isinstance(annotation, dict) or not annotation:
        raise UserError(f"{path}: wanted an object with the splits {', '.join(SPLITS)}")
    problems = Problems(path)
    sections = _sections(root / "sections.jsonl")
    base = root / "images" if (root / "images").is_dir() else root
    seen: dict[str, str] = {}
    out: dict[str, list[Study]] = {}
    for split, entries in annotation.items():
        if split not in SPLITS:
            problems.add(f"split {split!r} is unknown; wanted {', '.join(SPLITS)}")
        elif not isinstance(entries, list):
            problems.add(f"split {split!r} holds {_kind(entries)}; wanted a list of studies")
        else:
            reader = _Reader(split, base, images, sections, seen, problems)
            read = [reader.study(index, entry) for index, entry in enumerate(entries)]
            out[split] = [study for study in read if study is not None]
    problems.check()
    return out


class _Reader:
    def __init__(
        self,
        split: str,
        base: Path,
        images: str,
        sections: dict[str, dict[str, str]],
        seen: dict[str, str],
        problems: Problems,
    ) -> None:
        self.split, self.base, self.images = split, base, images
        self.sections, self.seen, self.problems = sections, seen, problems

    def study(self, index: int, entry: Any) -> Study | None:
        """The entry as a study; None when a problem was noted."""
        before = self.problems.count
        where = f"{self.split}[{index}]"
        if not isinstance(entry, dict):
            self.problems.add(f"{where} is {_kind(entry)}; wanted an object with id and report")
            return None
        needed = ["id", "report"] + (["image_path"] if self.images != "none" else [])
        missing = [key for key in needed if key not in entry]
        if missing:
            self.problems.add(f"{where} lacks {', '.join(missing)}; it has {', '.join(entry)}")
            return None
        name = self._id(entry["id"], where)
        where = f"{where} ({name})" if name else where
        self._report(entry["report"], where)
        labels = self._labels(entry["labels"], where) if entry.get("labels") is not None else None
        refs = () if self.images == "none" else self._images(entry, where)
        context = self._context(entry, name, where)
        if self.problems.count > before:
            return None
        return Study(name, self.split, entry["report"], labels, refs, **context)

    def _id(self, value: Any, where: str) -> str:
        name = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not is_text(name) or not name.strip():
            self.problems.add(f"{where} has id {value!r}; wanted a name")
            return ""
        if name in self.seen:
            self.problems.add(
                f"{where} repeats the id {name!r} of {self.seen[name]}; ids must be unique"
            )
        self.seen.setdefault(name, where)
        return name

    def _report(self, value: Any, where: str) -> None:
        if not is_text(value):
            what = "a string that is not Unicode" if isinstance(value, str) else _kind(value)
            self.problems.add(f"{where} has {what} as report; wanted text")
        elif not value.strip():
            self.problems.add(f"{where} has an empty report; write one or drop the study")

    def _labels(self, value: Any, where: str) -> tuple[int, ...] | None:
        if not isinstance(value, list) or len(value) != len(OBSERVATIONS):
            size = f"{len(value)} of them" if isinstance(value, list) else _kind(value)
            self.problems.add(f"{where} has labels as {size}; wanted {len(OBSERVATIONS)} class ids")
            return None
        for name, label in zip(OBSERVATIONS, value, strict=True):
            if type(label) is not int or not 0 <= label <= 3:
                self.problems.add(
                    f"{where} has label {label!r} for {name}; wanted 0 blank, 1 positive, "
                    "2 negative or 3 uncertain"
                )
                return None
        return tuple(value)

    def _images(self, entry: dict[str, Any], where: str) -> tuple[ImageRef, ...]:
        paths = entry["image_path"]
        if not isinstance(paths, list) or not paths or not all(is_text(p) and p for p in paths):
            self.problems.add(f"{where} has image_path {paths!r}; wanted a list of paths")
            return ()
        views = entry.get("views", ["frontal", *["lateral"] * (len(paths) - 1)])
        if not isinstance(views, list) or len(views) != len(paths):
            self.problems.add(
                f"{where} has views {views!r} for {len(paths)} images; wanted one for each"
            )
            return ()
        refs = []
        for path, view in zip(paths, views, strict=True):
            if view not in VIEWS:
                self.problems.add(f"{where} has view {view!r}; wanted one of {', '.join(VIEWS)}")
            elif self.images == "all" or view == "frontal":
                full = self._image(path, where)
                if full is not None:
                    refs.append(ImageRef(full, view.split()[-1], view.startswith("prior ")))
        if self.images == "frontal" and "frontal" not in views:
            self.problems.add(f"{where} has no frontal image among {views}; read all views")
        return tuple(refs)

    def _image(self, path: str, where: str) -> Path | None:
        full = self.base / path
        if os.path.isabs(path) or os.path.normpath(path).split(os.sep)[0] == "..":
            self.problems.add(
                f"{where} has image {path!r} outside {self.base}; wanted a path inside it"
            )
        elif "\0" in path or not full.is_file():
            self.problems.add(
                f"{where} has image {path!r}, not found in {self.base}; put it "
                "there, or set data.images=none"
            )
        elif full.stat().st_size == 0:
            self.problems.add(
                f"{where} has image {path!r}, an empty file in {self.base}; copy it again"
            )
        else:
            return full
        return None

    def _context(self, entry: dict[str, Any], name: str, where: str) -> dict[str, str]:
        found = self.sections.get(name.split("_")[0], {})
        out = {}
        for key in SECTIONS:
            value = entry.get(key)
            value = found.get(key) if value is None else value
            if value is not None and not is_text(value):
                self.problems.add(f"{where} has {_kind(value)} as {key}; wanted text")
            out[key] = (value or "").strip() if is_text(value or "") else ""
        return out


def _sections(path: Path) -> dict[str, dict[str, str]]:
    if not path.is_file():
        return {}
    problems = Problems(path)
    out: dict[str, dict[str, str]] = {}
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        row = parse_json(line, f"{path}: line {number}")
        if not isinstance(row, dict) or not is_text(row.get("id")):
            problems.add(f"line {number} has no id; wanted an object with one")
        elif row["id"] in out:
            problems.add(f"line {number} repeats the id {row['id']!r}; ids must be unique")
        else:
            out[row["id"]] = row
    problems.check()
    return out


def _kind(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        type(None): "null",
    }
    return names.get(type(value), "a number")
