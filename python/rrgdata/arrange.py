"""Arrange the studies of a dataset as a paper does.

Splits are joined, crowded studies left out, or each image made a sample.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rrgclinical.common.errors import UserError
from rrgdata.catalogue import Catalogue
from rrgdata.study import Study

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

    def imageless(study: Study) -> str:
        return "" if any(not image.prior for image in study.images) else why

    return _without(studies, imageless, catalogue)


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
