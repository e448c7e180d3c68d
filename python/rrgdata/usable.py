"""Read data of one's own for training, with images where it has any."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from rrgclinical.common.errors import Stopped, UserError
from rrgdata.catalogue import Catalogue, ReadSettings
from rrgdata.load import load_studies


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
    except Stopped:
        raise
    except UserError:
        if source == "table":
            return None
        raise
    bare = catalogue.broken and all(b.why.startswith("has no image;") for b in catalogue.broken)
    return None if bare and not any(catalogue.studies.values()) else catalogue
