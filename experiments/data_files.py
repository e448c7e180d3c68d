"""Say what data sets' files really hold: `python -m experiments.data_files`.

It is the table of docs/data.md (`experiments.page_table`). Sizes are those that each source of
`rrgdata` has on record, what lies in the files is what public readers of them state, and
the rows of IU X-Ray and NIH ChestX-ray14 that are "at hand" are counted in `RRG_DATA`, or in
`shared/data` beside the repository: 2,365 studies in R2Gen's layout without images, 16 radiographs.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from experiments.page_table import PageTable
from rrgdata.catalogue import Catalogue, ReadSettings
from rrgdata.images.read import read_with_facts
from rrgdata.load import load_studies
from rrgdata.sources import Source, every_source

REAL = Path(os.environ.get("RRG_DATA") or Path(__file__).parents[2] / "shared/data")

RADHARMONY, NOTEBOOK = "f10409/RadHarmony", "MIT-LCP/mimic-cxr, its notebook of metadata"
PAGES = "MIT-LCP/mimic-cxr, its page of reports"
LOADERS, CONVERTERS = "public loaders", "public converters"
UNKNOWN = "the view is unknown"
HOLDS = {
    "mimic_cxr": (
        ("ViewPosition is blank in 15,769 of 377,110 rows", NOTEBOOK, f"{UNKNOWN}, not frontal"),
        ("StudyTime 123.002 is 00:01:23", NOTEBOOK, "read so, for `data.prior=last`"),
        ("33 blanks before FINAL REPORT, addenda above it", PAGES, "cut by the rules below"),
    ),
    "chexpert_plus": (
        ("5 % of the DICOM files have no HighBit, some are MONOCHROME1", RADHARMONY, "both read"),
        ("17 rows are Frontal by one column, LL or RL by another", RADHARMONY, "by the path"),
        ("labels are lines of JSON, null for blank", RADHARMONY, "blank"),
    ),
    "rexgradient": (
        ("the ten parts are one zstd stream", RADHARMONY, "`tar --zstd -x`"),
        ("ages of 002D and 007Y: newborns and children are in", RADHARMONY, "not looked at"),
        ("views are UNKNOWN, N/A, or null in 2 %", RADHARMONY, UNKNOWN),
        ("the CSV files name no image", RADHARMONY, "the JSON files are read"),
    ),
    "padchest_gr": (
        ("master_table has 8,787 rows for 4,555 studies", LOADERS, "one split a study"),
        ("about 16 % of the rows have no sentence_en", LOADERS, "left out, and counted"),
    ),
    "nih": (
        ("519 PNGs are RGBA", CONVERTERS, "opaque alpha is dropped"),
        ("some copies have images/images/", CONVERTERS, "looked at too"),
    ),
    "r2gen_mimic": (
        ("a study's report stands once for each of its images", "cuhksz-nlp/R2Gen", "so too"),
    ),
}
"""What the files hold, who states it, and what is made of it here, by source."""


def of_source(source: Source) -> Iterator[list[str]]:
    """Yield what a source has on record, and what its files hold."""
    if (published := source.published) is not None:
        sizes = []
        for split, (studies, images) in published.sizes.items():
            counts = [
                f"{n:,} {what}" for n, what in ((studies, "studies"), (images, "images")) if n
            ]
            sizes.append(f"{split} {', '.join(counts)}")
        yield ["; ".join(sizes), f"[{published.counted}]({published.url})", "`data check` compares"]
    yield from map(list, HOLDS.get(source.name, ()))


def real(name: str) -> Path:
    """Name a folder of the real data; ModuleNotFoundError where it is not there."""
    if not (REAL / name).is_dir():
        raise ModuleNotFoundError(f"no real data at {REAL / name}", name=name)
    return REAL / name


def of_iu_xray() -> Iterator[list[str]]:
    """Yield what the studies at hand hold, counted."""
    root = real("iu_xray")
    annotation = json.loads((root / "annotation.json").read_text(encoding="utf-8"))
    entries = [entry for split in annotation.values() for entry in split]
    sizes = ", ".join(f"{split} {len(rows):,}" for split, rows in annotation.items())
    catalogue: Catalogue = load_studies("iu_xray", root, ReadSettings(images="none"))
    loaded = sum(map(len, catalogue.studies.values()))
    yield [sizes, "annotation.json", f"{loaded:,} loaded, {len(catalogue.broken)} broken"]
    elsewhere = sum(e.get("split", s) != s for s, rows in annotation.items() for e in rows)
    yield [
        f"{elsewhere} entries have another key `split` than the list they stand in",
        "annotation.json",
        "the list counts",
    ]
    images = Counter(len(entry["image_path"]) for entry in entries)
    said = ", ".join(f"{n} in {count:,}" for n, count in sorted(images.items()))
    yield [f"images a study: {said}", "annotation.json", "the first is frontal"]
    reports = [entry["report"] for entry in entries]
    masked = sum("XXXX" in report for report in reports)
    yield [f"XXXX in {masked:,} reports", "annotation.json", "read over"]
    most, times = Counter(reports).most_common(1)[0]
    alike = len(reports) - len(set(reports))
    said = f"{alike} reports repeat another; the most frequent, of {len(most.split())} words, "
    yield [f"{said}stands {times} times", "annotation.json", "each is a study"]
    words = np.array([len(report.split()) for report in reports])
    said = (
        f"words: median {np.median(words):.0f}, most {words.max()}, {(words > 60).sum()} above 60"
    )
    yield [said, "annotation.json", "R2Gen's cut at 60 belongs to the metrics"]
    lines = (root / "sections.jsonl").read_text(encoding="utf-8").splitlines()
    sections = [json.loads(line) for line in lines if line]
    counted = [
        f"{name} {sum(not (s.get(name) or '').strip() for s in sections):,}"
        for name in ("indication", "comparison", "findings", "impression")
    ]
    yield [f"without: {', '.join(counted)}", "sections.jsonl", "an empty text"]
    with (root / "mesh_labels_14.csv").open(encoding="utf-8", newline="") as file:
        coded = list(csv.DictReader(file))
    normal = sum(row["normal"] == "1" for row in coded)
    said = f"{normal:,} of {len(coded):,} are normal by their human codes"
    yield [said, "mesh_labels_14.csv", "not read: other classes than the 14"]


def of_nih() -> Iterator[list[str]]:
    """Yield what the radiographs at hand are."""
    files = sorted(real("nih_starter").glob("*.png"))
    kinds: Counter[str] = Counter()
    for file in files:
        with Image.open(file) as image:
            kinds[f"{image.mode} {image.width} x {image.height}"] += 1
    said = ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items()))
    read = Counter(read_with_facts(file)[1].kind for file in files)
    made = ", ".join(f"{count} as {kind}" for kind, count in read.items())
    yield [said, "the PNG files", f"read, {made}"]


PACKAGES: dict[str, Callable[[], Iterator[list[str]]]] = {
    name: partial(of_source, source)
    for name, source in every_source().items()
    if source.published or name in HOLDS
}
PACKAGES |= {"iu_xray, at hand": of_iu_xray, "nih, at hand": of_nih}
TABLE = PageTable(
    "experiments.data_files",
    "data.md",
    ("in the files", "by", "here"),
    PACKAGES,
    version=lambda _: "",
)


if __name__ == "__main__":
    sys.exit(TABLE.main(sys.argv[1:]))
