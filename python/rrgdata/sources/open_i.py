"""Studies of Open-i's Indiana collection (IU X-Ray) in the layout of its own archives.

    ecgen-radiology/N.xml, or NLMCXR_reports/ecgen-radiology/N.xml     one report a study
    NLMCXR_png/CXR1_1_IM-0001-3001.png, or NLMCXR_dcm/1/1_IM-0001-3001.dcm     its images
    annotation.json              optional: R2Gen's, whose split is then taken
    indiana_projections.csv      optional: Kaggle's table of views

A report has `<uId id="CXR1"/>`, `<AbstractText Label="...">` for COMPARISON, INDICATION, FINDINGS
and IMPRESSION, a `<parentImage id="CXR1_1_IM-0001-3001">` for each image, and `<MeSH>` headings
that curators chose (major) or a program (automatic). Archives: openi.nlm.nih.gov/faq. The elements,
and how the names of DICOM files follow from the ids: f10409/RadHarmony,
radharmony/harmonizer/openi_cxr/openi_cxr.py. Images are looked for in NLMCXR_png, NLMCXR_dcm,
images, images/images_normalized (Kaggle) and the root, in this order.

There is no official split. With annotation.json beside the reports its studies are taken, in its
split; without, a share of the studies, by a hash of the id: 7 of 10 to train, 1 to val, 2 to test.
R2Gen's file keeps 2,955 of the 3,955 reports: 2,069, 296 and 590.

The reports do not tell which image is frontal: their captions are of the study ("PA and Lateral");
that figure F1 is the frontal one, as that repository has it, no file says. Views come from
indiana_projections.csv alone, else they are "". MeSH headings are no labels here: the map at hand
(`experiments.human_codes`) has 8 of the 14 observations; as truth the other six would be blank.

Reports are parsed without a document type, so that no entity is ever expanded or fetched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from rrgclinical.common.errors import UserError
from rrgclinical.rules import join_lines
from rrgdata.catalogue import Catalogue, ReadSettings, traits_of
from rrgdata.problems import files_of
from rrgdata.sections import ReportSections
from rrgdata.sources.source import Published, Source
from rrgdata.sources.tables import add_study, read_csv, read_split, share_of
from rrgdata.study import ImageRef, Study

REPORTS = ("ecgen-radiology", "NLMCXR_reports/ecgen-radiology", "NLMCXR_reports")
IMAGES = ("NLMCXR_png", "NLMCXR_dcm", "images", "images/images_normalized", ".")
SECTIONS = ("comparison", "indication", "findings", "impression")
SHARES = (("train", 0.7), ("val", 0.8), ("test", 1.0))
"""Splits without annotation.json, each with the share of the studies up to it."""

_IMAGE = re.compile(r"(?:CXR)?(\d+)_(?:\1_)?(IM-[\w-]+)((?:\.dcm)?(?:\.png|\.jpe?g)?)")


class _Builder(ElementTree.TreeBuilder):
    """Refuses a document type, which alone can define entities."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ValueError("it has a document type (<!DOCTYPE ...>)")


def load_open_i(root: Path, settings: ReadSettings, catalogue: Catalogue) -> None:
    """Add the studies of Open-i's collection under `root`.

    UserError where there are no reports, none of the images, or a table that cannot be read. A
    report that is not XML, has a document type or no id, or names an image that is not there, is
    broken.
    """
    reports = _reports(root)
    # R2Gen's ids are "<study>_<image>"
    split = read_split(
        root / "annotation.json", lambda entry: str(entry.get("id", "")).split("_")[0], "study"
    )
    views = _views(root / "indiana_projections.csv", catalogue)
    if settings.images == "frontal" and not views:
        raise UserError(
            f"{root} does not tell which images are frontal; put Kaggle's indiana_projections.csv "
            "there, or set data.images=all"
        )
    files = {} if settings.images == "none" else _index(root)
    if settings.images != "none" and not files:
        raise UserError(
            f"{root} has no images such as NLMCXR_png/CXR1_1_IM-0001-3001.png; unpack them there, "
            "or set data.images=none"
        )
    lacking = dict(split or {})
    for path in reports:
        lacking.pop(f"CXR{path.stem}", None)  # one that cannot be parsed is broken, not lacking
        tree = _parse(path, catalogue)
        if tree is None:
            continue
        uid = tree.find("uId")
        name = "" if uid is None else uid.get("id", "").strip()
        where = f"{path.name}: {name}"
        lacking.pop(name, None)
        if not name:
            catalogue.add_broken(path.name, "has no <uId id=...>; download the reports again")
        elif split is not None and name not in split:
            catalogue.leave_out("not in annotation.json")
        else:
            images = [] if settings.images == "none" else _images(tree, files, views)
            if None in images:
                ids = [image.get("id") for image in tree.iter("parentImage")]
                absent = ids[images.index(None)]
                catalogue.add_broken(where, f"has image {absent!r}, not found under {root}")
                continue
            texts = {e.get("Label"): "".join(e.itertext()) for e in tree.iter("AbstractText")}
            catalogue.wording.note(*traits_of(*texts.values()))
            parts = {name: join_lines(texts.get(name.upper(), "")) for name in SECTIONS}
            own = next(part for part, end in SHARES if share_of(name) < end)
            refs = tuple(image for image in images if image is not None)
            study = Study(name, split[name] if split else own, None, None, refs)
            add_study(study, ReportSections(**parts), where, settings, catalogue)
    for name in lacking.values():
        catalogue.leave_out("of annotation.json that have no report here", split=name)


def _reports(root: Path) -> list[Path]:
    for folder in REPORTS:
        files = files_of(root / folder, "*.xml")
        if files:
            return sorted(files, key=lambda path: (len(path.stem), path.stem))
    raise UserError(f"{root / REPORTS[0]} has no XML files; unpack NLMCXR_reports.tgz in {root}")


def _parse(path: Path, catalogue: Catalogue) -> ElementTree.Element | None:
    """Parse a report; None where it is broken."""
    try:
        return ElementTree.fromstring(path.read_bytes(), ElementTree.XMLParser(target=_Builder()))
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        why = f"is not plain XML: {error}; download the reports again"
    catalogue.add_broken(path.name, why)
    return None


def _images(
    tree: ElementTree.Element, files: dict[str, Path], views: dict[str, str]
) -> list[ImageRef | None]:
    """Return the images of a report in its order, None for one that is not there."""
    keys = [_key(image.get("id", "")) for image in tree.iter("parentImage")]
    return [ImageRef(files[k], views.get(k, "")) if k in files else None for k in keys]


def _key(name: str) -> str:
    """Name an image alike in XML, PNG, DICOM and Kaggle's table: "1_IM-0001-3001"; "" if none."""
    image = _IMAGE.fullmatch(name)
    return f"{image[1]}_{image[2]}" if image else ""


def _index(root: Path) -> dict[str, Path]:
    """Find the images by their key, in the first of the folders that has any."""
    for folder in IMAGES:
        files = dict(_listed(root / folder, folder == "NLMCXR_dcm"))
        if files:
            return files
    return {}


def _listed(folder: Path, deep: bool) -> Iterator[tuple[str, Path]]:
    if folder.is_dir():
        for place, inner, names in os.walk(folder):
            for name in names:
                key = _key(name)
                if key:
                    yield key, Path(place) / name
            if not deep:
                inner.clear()


def _views(path: Path, catalogue: Catalogue) -> dict[str, str]:
    """Read Kaggle's views by image; none without its table."""
    if not path.is_file():
        return {}
    views = {}
    for where, cells in read_csv(path, ("filename", "projection"), catalogue):
        view = cells["projection"].strip().lower()
        if view not in ("frontal", "lateral"):
            catalogue.add_broken(where, f"has projection {view!r}; wanted Frontal or Lateral")
        views[_key(cells["filename"].strip())] = view
    return views


SOURCE = Source(
    name="open_i",
    load=load_open_i,
    marks=("ecgen-radiology", "NLMCXR_reports"),
    terms="public (Open-i); cite the source",
    published=Published(
        {"all": (3_955, 7_470)},
        "all studies, with or without findings (Demner-Fushman et al., JAMIA 2016); no split",
        "https://openi.nlm.nih.gov/faq",
    ),
)
