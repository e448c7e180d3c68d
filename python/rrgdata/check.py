"""Check a data set: what is there, left out, broken, and each label's rate.

Every image is decoded, and the verdict remembered for the runs (`ImageMemory`); stopped, the
check goes on with the images that it has not seen. Broken ones are always looked at again.

A report says the same with its line ends as any system writes them, wrapped at any width, in any
case, and with any mark where a name or a date was taken out. A way that changes the labels of a
data set's own reports shows text that is read wrongly, before it is trained on.
"""

from __future__ import annotations

import json
import os.path
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from statistics import mean, pstdev, quantiles

import numpy as np

from rrgclinical import build_labeller
from rrgclinical.common.errors import UserError
from rrgclinical.common.files import atomic_write, remove_left
from rrgclinical.common.progress import Bar, progress
from rrgclinical.common.shown import one_line
from rrgclinical.common.table import aligned
from rrgclinical.labels import OBSERVATIONS
from rrgclinical.rules import split_sentences
from rrgdata import Broken, Catalogue, ReadSettings, Study, load_studies
from rrgdata.images.check import ImageMemory, Verdict, decoded, header_notes, image_paths
from rrgdata.images.read import ImageFacts
from rrgdata.load import Splits, leave_out_long, repeated_images
from rrgdata.settings import DataSettings
from rrgdata.sources import every_source, guess_source
from rrgdata.sources.source import Published

Write = Callable[[str], str]

MOST = 1_000
"""Reports that are tried: so many, evenly over the data set."""
REMOVED = re.compile(r"\[\*\*.*?\*\*\]|_{3,}|\bX{4,}\b")
"""A name or a date that was taken out, as MIMIC-III, MIMIC-CXR and Open-i mark it."""
MARKS = ("___", "XXXX", "[**2101-1-1**]", "<DATE>", "<PHI>x</PHI>", "[redacted]", "{{date}}")
_ESCAPED = {"once": "\\", "twice": "\\E\\", "three times": "\\E\\E\\E\\"}
LINE_ENDS: dict[str, str] = {
    **{f"HL7 .br escaped {n}": f"{s}.br{s}" for n, s in _ESCAPED.items()},
    **{f"HL7 X0D X0A escaped {n}": f"{s}X0D{s}{s}X0A{s}" for n, s in _ESCAPED.items()},
    **{f"RTF {word}": f"\\{word} " for word in ("par", "line")},
    **{"carriage return": "\r", "CR and LF": "\r\n", "form feed": "\f", "Unicode": "\u2028"},
    **{"HTML": "<br/>", "HTML as text": "&lt;br&gt;", "XML": "&#10;", "backslash n": "\\n"},
    **{"Excel": "_x000D_\n", "quoted-printable": "=0D=0A", "pilcrow": "\xb6"},
}
"""What stands for a line end in a text, by the name of what writes it."""


def _ended_by(sign: str) -> Write:
    return lambda text: text.replace("\n", sign)


def as_rtf(text: str, slash: str = "\\") -> str:
    """Write a text as a document in RTF, with `slash` for each backslash."""
    said = re.sub(r"[\\{}]", r"\\\g<0>", text).replace("\n", "\\par\n")
    document = rf"{{\rtf1\ansi\deff0{{\fonttbl{{\f0 Arial;}}}}\f0\fs20 {said}\par }}"
    return document.replace("\\", slash)


CARRIERS: dict[str, Write] = {
    **{name: _ended_by(sign) for name, sign in LINE_ENDS.items()},
    "RTF document": as_rtf,
    "RTF document in HL7": lambda text: as_rtf(text, "\\E\\"),
    "HTML table": lambda text: f"<table><tr><td>{text.replace(chr(10), '<br>')}</td></tr></table>",
    "JSON string": json.dumps,
}
"""How systems write a text whose line ends are line feeds."""


def wrapped(text: str, width: int = 66) -> str:
    """Break the lines of a text at blanks."""
    return textwrap.fill(text, width, break_on_hyphens=False)


def a_line_each(text: str) -> str:
    """Write a sentence a line, without the stops."""
    return "\n".join(text[start:end].rstrip(". ") for start, end in split_sentences(text))


def try_properties(studies: Sequence[Study]) -> Iterator[list[str]]:
    """Count, for each way of writing, the reports whose labels it changes; at most `MOST`."""
    reports = [study.report or "" for study in studies]
    places = list(range(0, len(reports), -(-len(reports) // MOST) or 1))
    marked = [place for place in places if REMOVED.search(reports[place])]
    yield from _tried(studies, marked, str, {f"taken out: {m}": _marked(m) for m in MARKS})
    ways: dict[str, Write] = {f"{case.__name__} case": case for case in (str.upper, str.lower)}
    for width in (40, 66, 80, 100):
        ways[f"wrapped at {width}"] = partial(wrapped, width=width)
        ways[f"wrapped at {width}, capitals"] = partial(
            lambda w, text: wrapped(text.upper(), w), width
        )
    yield from _tried(studies, places, str, ways)
    for shape, name in ((wrapped, "wrapped"), (a_line_each, "a line each")):
        ends = {f"{name}, by {carrier}": write for carrier, write in CARRIERS.items()}
        yield from _tried(studies, places, shape, ends)


def _marked(mark: str) -> Write:
    return lambda text: REMOVED.sub(lambda _: mark, text)


def _tried(
    studies: Sequence[Study], places: Sequence[int], shape: Write, ways: Mapping[str, Write]
) -> Iterator[list[str]]:
    """Read the reports at `places` as `shape` writes them, and then in each of the ways."""
    labeller = build_labeller("rules")
    texts = [shape(studies[place].report or "") for place in places]
    labels = labeller.label(texts)
    for way, write in ways.items():
        differ = (labeller.label([write(text) for text in texts]) != labels).any(axis=1)
        first = studies[places[int(differ.argmax())]].id if differ.any() else "-"
        share = f"{differ.mean():.2%}" if texts else "-"
        yield [way, f"{len(texts):,}", f"{differ.sum():,}", share, first]


BROKEN = 1
"""Exit status of a check that found broken studies."""
SHOWN = 20
REPORTS_AT_ONCE = 512
POINTS = ("least", "5 %", "25 %", "median", "75 %", "95 %", "greatest")

Rows = list[list[str]]


def check_data_set(
    root: Path,
    data: DataSettings,
    *,
    source: str | None,
    out: Path | None,
    images: bool,
    properties: bool = False,
) -> int:
    """Print what a data set holds; return 0, or 1 where studies are broken.

    data: the settings by which it is read. Splits are the data's own: `data.splits`, `limit`,
        `each_image` and `max_images` are not applied.
    source: layout; None: guessed from the files.
    out: file for all broken studies, a JSON object a line; None: the first 20 are printed.
    images: whether the images are decoded.
    properties: whether reports are read in other ways of writing too.

    Raises UserError for a data set that cannot be read as a whole, and for an `out` that exists.
    """
    if out is not None and out.exists():
        raise UserError(f"{out} exists; name another file by --out, or remove it")
    layout = source or guess_source(root)
    settings = ReadSettings(**{f.name: getattr(data, f.name) for f in fields(ReadSettings)})
    catalogue = load_studies(layout, root, settings)
    if data.longest_text is not None:
        catalogue.studies = leave_out_long(catalogue.studies, data.longest_text, catalogue)
    verdicts = _decoded(catalogue, root, data.body_parts) if images else {}
    everything = [study for studies in catalogue.studies.values() for study in studies]
    guessed = "" if source else " (guessed from the files; data.source=... names another)"
    print(one_line(f"{layout}{guessed} in {root}"))
    published = every_source()[layout].published if layout in every_source() else None
    _show("studies and images that can be used", _sizes(published, catalogue.studies))
    if published is not None:
        print(f"  published: {published.counted}; {published.url}")
    _show_lines("left out by rule, and notes", catalogue.lines())
    _show_broken(catalogue.broken, out)
    of_studies = [*_views(everything), *_images_a_study(catalogue.studies)]
    _show_lines("images", [*of_studies, *([] if images else ["not decoded"])])
    _show("", _kinds(verdicts))
    _show_lines("", header_notes(verdicts))
    facts = {path: v for path, v in verdicts.items() if isinstance(v, ImageFacts)}
    if facts:
        lines = repeated_images(catalogue.studies, lambda path: facts[path].pixels)
        _show_lines("", [f"by their pixels, {line}" for line in lines])
    _show("report length", _lengths(everything))
    _show("prevalence of the observations", _prevalence(everything))
    if properties:
        _show("reports written in other ways: their labels must not change", _changes(everything))
    if out is not None:
        # last, so that a check that was cut off can be repeated
        out.parent.mkdir(parents=True, exist_ok=True)
        remove_left(out)
        atomic_write(out, "".join(b.line() for b in catalogue.broken))
    return BROKEN if catalogue.broken else 0


def _decoded(catalogue: Catalogue, root: Path, body_parts: Collection[str]) -> dict[Path, Verdict]:
    """Decode the images that are not known to be good; note the studies whose images are broken."""
    studies = [study for of in catalogue.studies.values() for study in of]
    memory = ImageMemory(root, body_parts)
    verdicts = decoded(image_paths(studies), memory, body_parts, "decoding images")
    why = {os.path.abspath(path): v for path, v in verdicts.items() if isinstance(v, str)}
    catalogue.add_broken_images(why)
    return verdicts


def _sizes(published: Published | None, studies: Splits) -> Rows:
    """Lay the sizes of the splits beside the published ones."""
    sizes = {split: (len(of), len(image_paths(of))) for split, of in studies.items()}
    stated = {} if published is None else published.sizes
    rows = [["split", "studies", "published", "images", "published"]]
    for name in dict.fromkeys([*sizes, *stated, "all"]):
        parts = list(sizes) if name == "all" else name.split("+")
        held = [sizes.get(part, (0, 0)) for part in parts]
        of_studies, of_images = stated.get(name, (None, None))
        counts = [sum(s for s, _ in held), of_studies, sum(i for _, i in held), of_images]
        rows.append([name, *("-" if n is None else f"{n:,}" for n in counts)])
    return rows


def _show_broken(broken: Sequence[Broken], out: Path | None) -> None:
    if out is not None:
        _show_lines("broken studies", [f"{len(broken):,}, listed in {out}"])
        return
    lines = [f"{b.where} {b.why}" for b in broken[:SHOWN]]
    if len(broken) > SHOWN:
        lines.append(f"and {len(broken) - SHOWN:,} more; --out FILE lists all")
    _show_lines(f"broken studies: {len(broken):,}", lines)


def _views(studies: Sequence[Study]) -> list[str]:
    refs = {image.path: image for study in studies for image in study.images}.values()
    views = Counter(image.view or "without a view" for image in refs)
    priors = len({i.path for s in studies for i in s.images if i.prior})
    counts = ", ".join(f"{n:,} {view}" for view, n in views.most_common())
    return [f"{len(refs):,} files" + (f": {counts}; {priors:,} of a prior study" if refs else "")]


def _images_a_study(studies: Splits) -> list[str]:
    """Give mean and standard deviation of a study's images, and how many have a prior."""
    lines = []
    for split, of in studies.items():
        counts = [len(study.images) for study in of]
        priors = sum(any(image.prior for image in study.images) for study in of)
        if any(counts):
            spread = f"{mean(counts):.2f} ± {pstdev(counts):.2f} images a study"
            lines.append(f"{split}: {spread}, {priors / len(of):.1%} of the studies with a prior")
    return lines


def _kinds(verdicts: Mapping[Path, Verdict]) -> Rows:
    """Count the files of each kind, with their sizes in pixels."""
    facts = [v for v in verdicts.values() if isinstance(v, ImageFacts)]
    rows = [["kind", "files", "width", "height"]]
    for kind, count in Counter(f.kind for f in facts).most_common():
        of = [f for f in facts if f.kind == kind]
        spans = (_span([f.width for f in of]), _span([f.height for f in of]))
        rows.append([kind, f"{count:,}", *spans])
    broken = len(verdicts) - len(facts)
    return [*rows, ["broken", f"{broken:,}", "", ""]] if verdicts else []


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"


def _lengths(studies: Sequence[Study]) -> Rows:
    """Give quantiles of the words and characters of a report."""
    reports = [study.report for study in studies if study.report]
    if not reports:
        return []
    rows = [[f"of {len(reports):,}", *POINTS]]
    for name, sizes in (
        ("words", [len(report.split()) for report in reports]),
        ("characters", [len(report) for report in reports]),
    ):
        # with one report, every quantile is its size
        cuts = quantiles([*sizes, *sizes[: 2 - len(sizes)]], n=20, method="inclusive")
        at = [min(sizes), cuts[0], cuts[4], cuts[9], cuts[14], cuts[18], max(sizes)]
        rows.append([name, *(f"{value:,.0f}" for value in at)])
    return rows


def _prevalence(studies: Sequence[Study]) -> Rows:
    """Count positive and uncertain by label, as the data says and as `rules` reads the reports."""
    columns: list[tuple[str, np.ndarray]] = []
    labelled = [study for study in studies if study.labels is not None]
    for name, of in (
        ("labels", [s for s in labelled if not s.expert]),
        ("human labels", [s for s in labelled if s.expert]),
    ):
        if of:
            columns.append((name, np.array([study.labels for study in of])))
    reports = [study.report for study in studies if study.report]
    if reports:
        columns.append(("reports by rules", np.concatenate(list(_read(reports)))))
    header = [[f"{name} ({len(of):,}): positive", "uncertain"] for name, of in columns]
    rows = [["", *(cell for pair in header for cell in pair)]]
    for i, observation in enumerate(OBSERVATIONS):
        cells = [f"{(c[:, i] == k).mean():.1%}" for _, c in columns for k in (1, 3)]
        rows.append([observation, *cells])
    return rows if columns else []


def _changes(studies: Sequence[Study]) -> Rows:
    """Count the reports whose labels each way of writing changes, and name the first study."""
    reported = [study for study in studies if study.report]
    header = ["written so", "reports", "changed", "share", "first"]
    return [header, *try_properties(reported)] if reported else []


def _read(reports: Sequence[str]) -> Iterable[np.ndarray]:
    labeller = build_labeller("rules")
    bar: Bar[int] = progress(len(reports), "reading reports")
    with bar:
        for begin in range(0, len(reports), REPORTS_AT_ONCE):
            chunk = reports[begin : begin + REPORTS_AT_ONCE]
            yield np.asarray(labeller.label(chunk))
            bar.advance(len(chunk))


def _show_lines(title: str, lines: Sequence[str]) -> None:
    _show(title, [[line] for line in lines])


def _show(title: str, rows: Rows) -> None:
    """Print a table under its title: names to the left, numbers to the right."""
    if title:
        print(f"\n{one_line(title)}")
        rows = rows or [["none"]]
    for line in aligned([[*map(one_line, row)] for row in rows]):
        print(f"  {line}")
