"""Loads the studies of a data set, whichever layout its files have, and arranges them.

Splits are joined, crowded studies left out, or each image made a sample, as a paper does.
"""

from __future__ import annotations

import gc
import itertools
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rrgclinical.common.errors import UserError
from rrgclinical.common.files import atomic_write
from rrgclinical.common.progress import Bar, progress
from rrgclinical.common.resolve import nearest, resolve
from rrgclinical.grounding import has_boxes
from rrgdata.catalogue import Catalogue, NoImageColumn, ReadSettings
from rrgdata.sources import every_source, require_place
from rrgdata.sources.source import Loader
from rrgdata.study import Study

if TYPE_CHECKING:
    from rrgdata.phantom import PhantomConfig
    from rrgdata.settings import DataSettings

Splits = dict[str, list[Study]]


def join_splits(studies: Splits, parts_of: Mapping[str, str]) -> Splits:
    """The splits, those of `asked` made of several: `{"train": "train+val"}` trains on both.

    A split that was taken into another is gone. Raises UserError for a split that the data has
    not, or one that is asked for twice.
    """
    taken: dict[str, str] = {}
    for name, parts in parts_of.items():
        for part in parts.split("+"):
            setting = f"data.splits={{{name}: {parts}}}"
            if part not in studies:
                raise UserError(f"{setting}: the data has no {part}, it has {', '.join(studies)}")
            if part in taken:
                raise UserError(
                    f"{setting}: {part} is in {taken[part]} already; name each split once"
                )
            taken[part] = name
    joined = {split: of for split, of in studies.items() if split not in taken}
    for part, name in taken.items():
        if name in studies and name not in taken:
            raise UserError(
                f"data.splits={{{name}: {parts_of[name]}}} leaves the {name} of the data out; "
                f"name it too, as in {name}: {name}+{parts_of[name]}"
            )
        joined.setdefault(name, []).extend(replace(s, split=name) for s in studies[part])
    return joined


def leave_out_crowded(studies: Splits, most: int) -> Splits:
    """The studies with at most `most` images, priors counted; a warning counts the others."""
    fitting = {split: [s for s in of if len(s.images) <= most] for split, of in studies.items()}
    gone = {split: len(of) - len(fitting[split]) for split, of in studies.items()}
    if any(gone.values()):
        lost = ", ".join(f"{split} {n} of {len(studies[split])}" for split, n in gone.items() if n)
        warnings.warn(
            f"data.max_images={most} leaves out studies with more images: {lost}", stacklevel=2
        )
    return fitting


def repeated_images(studies: Splits, name_of: Callable[[Path], str] = str) -> list[str]:
    """Say which images, priors aside, are in several splits or twice in a study.

    name_of: what two files have in common that hold one image; the path.
    """
    first: dict[str, tuple[str, Path]] = {}
    crossing, twice = [], []
    for split, of in studies.items():
        for study in of:
            paths = [image.path for image in study.images if not image.prior]
            names = {name_of(path): path for path in paths}
            if len(names) < len(paths):
                twice.append(study.id)
            for name, path in names.items():
                other, place = first.setdefault(name, (split, path))
                if other != split:
                    crossing.append(f"{place} of {other}, in {split} as {path.name}")
    lines = [f"{len(twice)} studies have an image twice, the first is {twice[0]}"] if twice else []
    if crossing:
        lines.append(
            f"{len(crossing)} images are in several splits, the first is {crossing[0]}; results on "
            "them say less"
        )
    return lines


def longest_text(study: Study) -> tuple[int, str]:
    """Find the longest text of a study: its characters and its name."""
    texts = {"report": study.report or "", "indication": study.indication}
    texts |= {"technique": study.technique, "comparison": study.comparison}
    return max((len(text), name) for name, text in texts.items())


def check_lengths(studies: Mapping[str, list[Study]], longest: int | None) -> None:
    """Refuse a longest text of more than `longest` characters.

    Raises UserError for the study that has it; None refuses none."""
    texts = ((*longest_text(study), study.id) for of in studies.values() for study in of)
    size, name, study = max(texts, default=(0, "", ""))
    if longest is not None and size > longest:
        raise UserError(
            f"study {study}: its {name} has {size:,} characters, more than data.longest_text="
            f"{longest}; shorten it or leave the study out, or raise data.longest_text as far as "
            "memory allows"
        )


def leave_out_long(studies: Splits, most: int, catalogue: Catalogue) -> Splits:
    """The studies whose texts have at most `most` characters; the others are noted as broken."""

    def too_long(study: Study) -> str:
        size, name = longest_text(study)
        why = f"has {name} of {size:,} characters, more than data.longest_text={most}"
        return why if size > most else ""

    return _without(studies, too_long, catalogue)


def leave_out_imageless(studies: Splits, catalogue: Catalogue) -> Splits:
    """The studies with a current image; the others are noted as broken."""
    why = "has no current image, and data.each_image makes each a sample"
    return _without(studies, lambda s: why if all(i.prior for i in s.images) else "", catalogue)


def _without(studies: Splits, defect: Callable[[Study], str], catalogue: Catalogue) -> Splits:
    """Note the studies with a defect as broken; return the others."""
    remaining: Splits = {split: [] for split in studies}
    for split, of in studies.items():
        for study in of:
            if why := defect(study):
                catalogue.add_broken(f"study {study.id}", why)
            else:
                remaining[split].append(study)
    return remaining


def one_image_each(studies: Splits) -> Splits:
    """A sample for every current image of every study, with the study's report and labels.

    The sample is named study#1, study#2, ... in the order of the images; priors stay out of it.
    Raises UserError for a study without a current image.
    """
    return {split: [part for s in of for part in _samples(s)] for split, of in studies.items()}


def _samples(study: Study) -> list[Study]:
    current = [image for image in study.images if not image.prior]
    if not current:
        raise UserError(
            f"data.each_image makes each image a sample, but study {study.id} has none; use "
            "data.each_image=false"
        )
    return [
        replace(study, id=f"{study.id}#{number}", images=(image,))
        for number, image in enumerate(current, 1)
    ]


IMAGES = ("all", "none", "frontal")
SECTIONS = ("findings", "impression", "both")
PRIORS = ("none", "last")
LEFT_OUT = "left_out.jsonl"
"""Where a run keeps the broken studies that `data.skip` left out."""


def load_studies(source: str, root: str | Path, settings: ReadSettings | None = None) -> Catalogue:
    """Load a data set by split, in the order of its own files.

    source: a name of `every_source`, or a loader of one's own as `package.module:function`, which
        takes root, settings and the catalogue to fill.
    settings: which images and text are read; see `ReadSettings`.

    Broken studies are in the catalogue, whose `check` raises for them. Images are not decoded;
    `read_image` does that. Raises UserError, one line, for anything wrong with the arguments or
    with the data set as a whole.
    """
    settings = settings or ReadSettings()
    load = _loader(source)
    for name, choices in (("images", IMAGES), ("sections", SECTIONS), ("prior", PRIORS)):
        if (value := getattr(settings, name)) not in choices:
            raise UserError(f"{name}={value!r} is unknown; wanted one of {', '.join(choices)}")
    place, layout = Path(root), every_source().get(source)
    for key, unset, kind in (("reports", None, "reports_apart"), ("prior", "none", "priors")):
        value = getattr(settings, key)
        if value != unset and layout is not None and not getattr(layout, kind):
            names = " or ".join(s.name for s in every_source().values() if getattr(s, kind))
            raise UserError(
                f"data.{key}={value} is for data.source={names}, {source} does not read it; take "
                "it off"
            )
    require_place(source, place)
    catalogue = Catalogue()
    with _uncollected():
        load(place, settings, catalogue)
        catalogue.notes += repeated_images(catalogue.studies)
    studies = [*itertools.chain.from_iterable(catalogue.studies.values())]
    unknown = next((s.id for s in studies if not all(i.view for i in s.images)), None)
    if settings.images == "frontal" and unknown is not None:
        raise UserError(
            f"study {unknown}: the data does not say which view its image shows, so frontal images "
            "cannot be chosen; use data.images=all"
        )
    if settings.prior == "last" and not any(i.prior for study in studies for i in study.images):
        catalogue.notes.append(f"data.prior=last adds nothing: no study under {place} has a prior")
    return catalogue


def require_root(data: DataSettings) -> None:
    """Raise UserError where a named root is not there; phantoms are drawn."""
    if data.source != "phantom" and not data.mix and data.root is not None:
        require_place(data.source, Path(data.root).expanduser())


@contextmanager
def _uncollected() -> Iterator[None]:
    # Studies hold no cycles, and looking for some among a million new objects took half the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _loader(source: str) -> Loader:
    layouts = every_source()
    if source in layouts:
        return layouts[source].load
    names = ", ".join(layouts)
    unknown = f"source {source!r} is unknown; {nearest(source, layouts)}wanted one of {names}"
    mend = "define it as a function of root, settings and catalogue"
    return resolve(source, f"data.source={source}", unknown, mend)


def open_studies(
    data: DataSettings,
    work: Path,
    broken_images: Mapping[str, str] | None = None,
    *,
    quiet: bool = False,
) -> Splits:
    """Load the studies of a data set as the settings arrange them.

    Phantoms are written to `data.root`, or `work`/data, first.
    broken_images: files known to be broken, by absolute path, and why.
    quiet: warn of nothing and write no list, as on ranks other than 0.

    Broken studies stop it, or with `data.skip` are listed in `work`/left_out.jsonl. What is left
    out, and by which rule, is warned of once. Raises UserError as `load_studies`, and for what a
    setting asks of data that has it not.
    """
    if data.source == "phantom":
        source, root = "iu_xray", _drawn(data.phantom, data, work)
    elif data.root is None:
        raise UserError(f"data.source={data.source} needs data.root=<directory of the dataset>")
    else:
        source, root = data.source, Path(data.root).expanduser()
    settings = ReadSettings(
        **{field.name: getattr(data, field.name) for field in fields(ReadSettings)}
    )
    if (source == "mix") != bool(data.mix):
        raise UserError(f"data.source={data.source} has data.mix={[*data.mix]}; set both or none")
    if data.mix:
        from rrgdata.mix import load_mix  # most runs have none

        catalogue = load_mix(data.mix, root, settings, load_studies, skip=data.skip)
        catalogue.notes += repeated_images(catalogue.studies)  # of one set under two names too
    else:
        catalogue = load_studies(source, root, settings)
    catalogue.add_broken_images(broken_images or {})
    if not data.skip:
        catalogue.check(root)
    studies = catalogue.studies
    if data.boxes and not any(has_boxes(s.report) for of in studies.values() for s in of):
        raise UserError(f"data.boxes=true, but no report under {root} has a box; set it false")
    if data.skip and data.longest_text is not None:
        studies = leave_out_long(studies, data.longest_text, catalogue)
    if data.skip and data.each_image:
        studies = leave_out_imageless(studies, catalogue)
    if data.skip and not any(studies.values()):
        catalogue.check(root)  # nothing is left of it
    if not quiet:
        _warn_left_out(catalogue, work)
    studies = join_splits(studies, data.splits)
    if data.max_images is not None:
        studies = leave_out_crowded(studies, data.max_images)
    if data.each_image:
        studies = one_image_each(studies)
    if data.limit is not None:
        studies = {split: of_split[: data.limit] for split, of_split in studies.items()}
    check_lengths(studies, data.longest_text)
    return studies


def phantom_root(data: DataSettings, work: Path) -> Path:
    """Return the directory where the phantoms of these settings lie or will be written."""
    return Path(data.root).expanduser() if data.root else work / "data"


def holds_files(directory: Path) -> bool:
    """Tell whether something lies in the directory; False where there is none."""
    return directory.is_dir() and any(directory.iterdir())


def remembered_root(data: DataSettings) -> Path | None:
    """Return the directory whose images are remembered between runs; None of phantoms."""
    phantom = data.source == "phantom" or data.root is None
    return None if phantom else Path(str(data.root)).expanduser()


def _drawn(config: PhantomConfig, data: DataSettings, work: Path) -> Path:
    from rrgdata.phantom import write_phantom  # drawing is slow to import, and mostly not wanted

    root = phantom_root(data, work)
    if holds_files(root):
        write_phantom(config, root)  # nothing is written if they are the same phantoms
        return root
    bar: Bar[int] = progress(config.train + config.val + config.test, "phantom")
    with bar:
        write_phantom(config, root, progress=bar.advance)
    return root


def _warn_left_out(catalogue: Catalogue, work: Path) -> None:
    for line in catalogue.lines():
        warnings.warn(line, stacklevel=2)
    if catalogue.broken:
        path = work / LEFT_OUT
        work.mkdir(parents=True, exist_ok=True)
        atomic_write(path, "".join(broken.line() for broken in catalogue.broken))
        first = catalogue.broken[0]
        warnings.warn(
            f"data.skip leaves out {len(catalogue.broken)} broken studies, listed in {path}; the "
            f"first is {first.where} {first.why}",
            stacklevel=2,
        )


def usable(
    source: str, root: Path, settings: ReadSettings, *, images_named: bool, skip: bool
) -> tuple[str, Catalogue]:
    """Read the data, without images where none is named; return `images` with it.

    images_named: `settings.images` is what was asked for. skip: broken studies are left out.
    UserError where it cannot be used: for broken studies, or no training study with a report.
    """
    images = settings.images
    if images_named:
        catalogue = load_studies(source, root, settings)
    else:
        # the text first: what is wrong with it is no matter of images
        catalogue = load_studies(source, root, replace(settings, images="none"))
        with_images = _with_images(source, root, settings)
        if with_images is None:
            images = "none"
        catalogue = with_images or catalogue
    check = f"rrgtrain data check {shlex.quote(str(root))}"
    if catalogue.broken and not skip:
        first = catalogue.broken[0]
        raise UserError(
            f"{len(catalogue.broken)} studies of {root} are broken, first {first.where}, which "
            f"{first.why}; `{check}` lists them, data.skip=true leaves them out"
        )
    if not any(study.report for study in catalogue.studies.get("train", [])):
        raise UserError(f"{root} has no training study with a report; see `{check}`")
    return images, catalogue


def _with_images(source: str, root: Path, settings: ReadSettings) -> Catalogue | None:
    """Read the data with images; None for a table without a column of them, or an empty one."""
    try:
        catalogue = load_studies(source, root, settings)
    except NoImageColumn:
        return None
    bare = catalogue.broken and all(b.why.startswith("has no image;") for b in catalogue.broken)
    return None if bare and not any(catalogue.studies.values()) else catalogue
