"""Joins several data sets into one, `data.source=mix`.

Ids and patients begin with the source's name, as `mimic/s501`; a study that comes again in an epoch
has an id that ends in `~2`, or `~~2` where ids of the source do so. Each split goes through its
sources at even paces, so that its first N studies have them in their proportions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import numpy as np

from rrgclinical.common.errors import UserError
from rrgdata.catalogue import Catalogue, ReadSettings
from rrgdata.settings import MixedSource
from rrgdata.study import Study

Mix = Mapping[str, MixedSource]
Load = Callable[..., Catalogue]
MOST = 10_000_000  # training studies of a source in an epoch, each an entry in memory


def load_mix(mix: Mix, root: Path, settings: ReadSettings, load: Load, *, skip: bool) -> Catalogue:
    """Load the sources, their roots below `root`; `settings` are of those without their own.

    load: `load_studies`. skip: broken studies are noted; otherwise UserError, as for what `load`
    refuses, and for a source without training studies, or out of domain without test studies.
    """
    whole, placed = Catalogue(), []
    keys = {f.name for f in fields(ReadSettings)}
    for name, part in mix.items():
        if "/" in name or not name.strip():
            raise UserError(f"data.mix has the name {name!r}; write one without /, which ends it")
        place = root / Path(part.root).expanduser()
        own = {k: v for k, v in vars(part).items() if k in keys and v is not None}
        read = partial(load, part.source, place, replace(settings, **own))
        trains, splits = part.weight > 0, _read(name, part, read, whole, place, skip)
        if not splits.get(needed := "train" if trains else "test"):
            mend = f"set data.mix.{name}.weight=0" if trains else "leave it out"
            raise UserError(f"data.mix.{name} has no {needed} study; {mend}")
        if trains and not 0 < (size := round(part.weight * len(splits["train"]))) <= MOST:
            why = f"makes {size:,} of {len(splits['train'])} training studies an epoch"
            raise UserError(f"data.mix.{name}.weight={part.weight:g} {why}; wanted 1 to {MOST:,}")
        mark = "~"
        while any(re.search(rf"{mark}\d+$", study.id) for of in splits.values() for study in of):
            mark += "~"
        for split, of in splits.items():
            if not trains and split != "test":
                whole.leave_out(f"of {name}, out of domain,", len(of), split=split)
                continue
            drawn = repeated(of, part.weight, mark) if split == "train" else of
            placed += [((k + 0.5) / len(drawn), name, study) for k, study in enumerate(drawn)]
            if split == "train":
                whole.notes.append(f"{name}: {len(drawn)} training studies an epoch, of {len(of)}")
    for _, name, study in sorted(placed, key=lambda place: place[0]):
        whole.add(study, f"{name}: {study.id}")
    return whole


def _read(
    name: str, part: MixedSource, read: Load, whole: Catalogue, place: Path, skip: bool
) -> dict[str, list[Study]]:
    try:
        inner = read()
        if not skip:
            inner.check(place)
    except UserError as error:
        raise UserError(f"data.mix.{name}: {error}") from error
    for broken in inner.broken:
        whole.add_broken(f"{name}: {broken.where}", broken.why)
    whole.notes += [f"{name}: {line}" for line in inner.lines()]

    def named(study: Study) -> Study:
        patient = study.patient and f"{name}/{study.patient}"
        return replace(study, id=f"{name}/{study.id}", patient=patient)

    most = vars(part.limit)
    return {split: [*map(named, of[: most.get(split)])] for split, of in inner.studies.items()}


def repeated(studies: Sequence[Study], weight: float, mark: str) -> list[Study]:
    """List the studies `weight` times, evenly spaced ones for a part of a pass."""
    size = len(studies)
    passes, rest = divmod(round(weight * size), size)
    places = [(i, again) for again in range(passes) for i in range(size)]
    places += [(k * size // rest, passes) for k in range(rest)]
    # an id that comes again ends in `mark` and the number of its pass
    ids = [studies[i].id + (f"{mark}{again + 1}" if again else "") for i, again in places]
    return [replace(studies[i], id=name) for (i, _), name in zip(places, ids, strict=True)]


def groups_of(mix: Mix, ids: Sequence[str]) -> list[tuple[str, str, np.ndarray]]:
    """List sub-groups of R studies, name, rule and members, bool `[R]`: by domain and source."""
    outside = [name for name, part in mix.items() if part.weight == 0]
    inside = [name for name in mix if name not in outside]
    sets = {"in domain": inside, "out of domain": outside} if outside and inside else {}
    sets |= {f"source {name}": [name] for name in mix}
    source = [name.partition("/")[0] for name in ids]
    return [
        (group, f"studies of {', '.join(names)}", np.isin(source, names))
        for group, names in sets.items()
    ]
