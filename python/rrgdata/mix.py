"""Joins several data sets into one, `data.source=mix`.

Ids and patients begin with the source's name, as `mimic/s501`; a study that comes again in an epoch
has an id that ends in `~2`. Each split goes through its sources at even paces, so that its first N
studies have them in their proportions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from rrgclinical.common.errors import UserError
from rrgdata.catalogue import Catalogue, ReadSettings
from rrgdata.load import load_studies, repeated_images
from rrgdata.settings import MixedSource
from rrgdata.study import Study

Mix = Mapping[str, MixedSource]


def load_mix(mix: Mix, root: Path, settings: ReadSettings, *, skip: bool) -> Catalogue:
    """Load the sources, whose roots may be below `root`; `settings` where one has none of its own.

    skip: broken studies are noted; otherwise UserError, as for what `load_studies` refuses, and for
    a source without training studies, or out of domain without test studies.
    """
    whole, placed = Catalogue(), []
    for name, part in mix.items():
        if "/" in name:
            raise UserError(f"data.mix has the name {name!r}; write it without /, which ends it")
        trains, splits = part.weight > 0, _read(name, part, root, settings, whole, skip)
        if not splits.get(needed := "train" if trains else "test"):
            mend = f"set data.mix.{name}.weight=0" if trains else "leave it out"
            raise UserError(f"data.mix.{name} has no {needed} study; {mend}")
        for split, of in splits.items():
            if not trains and split != "test":
                whole.leave_out(f"of {name}, out of domain,", len(of), split=split)
                continue
            own = repeated(of, part.weight) if split == "train" else of
            placed += [((k + 0.5) / len(own), name, study) for k, study in enumerate(own)]
            if split == "train":
                whole.notes.append(f"{name}: {len(own)} training studies an epoch, of {len(of)}")
    for _, name, study in sorted(placed, key=lambda place: place[0]):
        whole.add(study, f"{name}: {study.id}")
    whole.notes += repeated_images(whole.studies)  # one set under two names has splits of both
    return whole


def _read(
    name: str, part: MixedSource, root: Path, settings: ReadSettings, whole: Catalogue, skip: bool
) -> dict[str, list[Study]]:
    place, own = root / Path(part.root).expanduser(), {f.name for f in fields(ReadSettings)}
    own_settings = {k: v for k, v in vars(part).items() if k in own and v is not None}
    try:
        inner = load_studies(part.source, place, replace(settings, **own_settings))
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


def repeated(studies: Sequence[Study], weight: float) -> list[Study]:
    """List the studies `weight` times; of a part of a pass they are evenly spaced ones."""
    size = len(studies)
    passes, rest = divmod(round(weight * size), size)
    places = [(i, again) for again in range(passes) for i in range(size)]
    places += [(k * size // rest, passes) for k in range(rest)]
    ids = [studies[i].id + (f"~{again + 1}" if again else "") for i, again in places]
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
