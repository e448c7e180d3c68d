"""Train on several data sets in one run; tabulate each.

    rrgtrain sft sft data.source=experiments.mix:load data.root=mix.yaml --out runs/mix
    python -m experiments.mix mix.yaml runs/mix       the run's scorecard, a column a source

A mix is a YAML file:

    seed: 0                    # of the draw, 0 by default
    studies: 20000             # training studies an epoch; by default as many as the sources have
    sources:
      mimic: {source: mimic_cxr, root: /data/mimic, weight: 3, sections: both}
      iu: {source: open_i, root: /data/open-i, weight: 1, limit: {train: 2000}}
      padchest: {source: padchest_gr, root: /data/padchest-gr, weight: 0}

`source` and `root` are those of `data`, a path beside the mix may be relative. `limit` keeps the
first studies of a split. `images`, `sections`, `prior`, `reports` and `columns` are a source's own;
what it does not name is the run's. With N studies an epoch, a source has its weight's share of
them, whole numbers by the largest remainders: one with fewer is repeated as often as that takes,
and the rest of each share is drawn by the seed, without replacement. Sources without a weight have
that of their size. The file alone decides the list, the trainer's seed and step the order in it, so
a run resumes as with one data set.

Ids and patients begin with the source's name (`mimic/s501`), the second time in an epoch `~2` ends
the id. Weight 0 is out of domain: its test studies are read, its training and validation studies
are not, so no checkpoint is chosen by them.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from rrgclinical.common import json_reader
from rrgclinical.common.arguments import is_real
from rrgclinical.common.files import read_whole_text
from rrgclinical.common.plain_yaml import read_values
from rrgclinical.common.table import aligned
from rrgclinical.metrics.registry import metric_of
from rrgclinical.scorecard import Pairs
from rrgclinical.scorecard.judge import GIVEN_TRUTH
from rrgdata.catalogue import Catalogue, ReadSettings
from rrgdata.load import load_studies
from rrgdata.study import Study
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.rewards import RewardService
from rrgtrain.run.scorecards import judge_of
from rrgtrain.schema import Recipe

SPLITS = ("train", "val", "test")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_OWN = {field.name for field in fields(ReadSettings)}


@dataclass(frozen=True)
class Part:
    """One source: weight None is its size, 0 out of domain; limit: studies by split."""

    name: str
    source: str
    root: Path
    weight: float | None = None
    limit: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Mix:
    """The parts, studies an epoch (None: all there are) and the seed of the draw."""

    parts: tuple[Part, ...]
    studies: int | None = None
    seed: int = 0


def read_mix(path: Path) -> Mix:
    """Read a mix; UserError, one line, for what is none."""
    try:
        values = read_values(read_whole_text(path))
    except (OSError, ValueError, yaml.YAMLError) as error:
        line = " ".join(str(error).split())
        raise UserError(f"{path}: no mix can be read ({line}); write it as YAML") from error
    _keys(path, "", values, {"sources"}, {"seed", "studies"})
    if not isinstance(values["sources"], dict) or not values["sources"]:
        raise UserError(f"{path}: sources is {values['sources']!r:.40}; wanted them by name")
    parts = tuple(_part(path, name, of) for name, of in values["sources"].items())
    trained = [part for part in parts if part.weight != 0]
    if not trained:
        raise UserError(f"{path}: every weight is 0, so there is nothing to train on; raise one")
    if len({part.weight is None for part in trained}) > 1:
        bare = next(part.name for part in trained if part.weight is None)
        raise UserError(f"{path}: {bare} has no weight, others have; give one to each or to none")
    studies = values.get("studies")
    for name, value, least in (("studies", studies, 1), ("seed", values.get("seed", 0), 0)):
        if value is not None or name == "seed":
            _whole(path, name, value, least)
    return Mix(parts, studies, values.get("seed", 0))


def _part(path: Path, name: str, values: Any) -> Part:
    where = f"sources: {name}: "
    if not _NAME.fullmatch(name):
        raise UserError(f"{path}: the source {name!r} has other signs than a-z, 0-9, _ and -")
    _keys(path, where, values, {"source", "root"}, {"weight", "limit", *_OWN})
    for key in ("source", "root"):
        if not isinstance(values[key], str):
            raise UserError(f"{path}: {where}{key} is {values[key]!r:.40}; wanted a text")
    weight, limit = values.get("weight"), values.get("limit") or {}
    if weight is not None and not (is_real(weight) and 0 <= weight < math.inf):
        raise UserError(f"{path}: {where}weight is {weight!r:.40}; wanted a number, at least 0")
    _keys(path, f"{where}limit: ", limit, set(), set(SPLITS))
    for split, most in limit.items():
        _whole(path, f"{where}limit: {split}", most, 0)
    root = path.parent / Path(values["root"]).expanduser()
    own = {key: value for key, value in values.items() if key in _OWN}
    return Part(name, values["source"], root, weight, limit, own)


def _keys(path: Path, where: str, values: Any, needed: set[str], others: set[str]) -> None:
    if not isinstance(values, dict):
        raise UserError(f"{path}: {where}{values!r:.40} stands where names with values are wanted")
    for key in values:
        if key not in needed | others:
            names = ", ".join(sorted(needed | others))
            raise UserError(f"{path}: {where}unknown key {key!r}; wanted some of {names}")
    if lacking := sorted(needed - values.keys()):
        raise UserError(f"{path}: {where}{' and '.join(lacking)} missing; add it")


def _whole(path: Path, name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"{path}: {name} is {value!r:.40}; wanted a whole number from {least}")


def load(root: Path, settings: ReadSettings, catalogue: Catalogue) -> None:
    """Fill the catalogue with the mix in file `root`; `settings` where a source has none.

    Raises UserError as `read_mix` and `load_studies`, and for a source that has no training study
    though it has a weight, or is out of domain without a test study.
    """
    mix = read_mix(root)
    studies = {part.name: _read(part, settings, catalogue) for part in mix.parts}
    trained = [part for part in mix.parts if part.weight != 0]
    for part in mix.parts:
        split = "train" if part.weight != 0 else "test"
        if not studies[part.name].get(split):
            mend = "leave the source out" if split == "test" else "set weight: 0"
            raise UserError(f"{root}: sources: {part.name}: no {split} study; {mend}")
    sizes = [len(studies[part.name]["train"]) for part in trained]
    weights = [
        float(w if p.weight is None else p.weight) for p, w in zip(trained, sizes, strict=True)
    ]
    total = sum(sizes) if mix.studies is None else mix.studies
    counts = shares(weights, total)
    for place, (part, size, count) in enumerate(zip(trained, sizes, counts, strict=True)):
        own = studies[part.name].pop("train")
        for index, again in drawn(size, count, [mix.seed, place]):
            study = own[index]
            name = f"{study.id}~{again + 1}" if again else study.id
            catalogue.add(replace(study, id=name), f"{part.name}: {name}")
        share = f"{count} training studies of {size}, {count / total:.3f} of an epoch"
        catalogue.notes.append(f"{part.name}: {share}")
    for part in mix.parts:
        for split, of in studies[part.name].items():
            if part.weight == 0 and split != "test":
                catalogue.leave_out(f"of {part.name}, out of domain,", len(of), split=split)
                continue
            for study in of:
                catalogue.add(study, f"{part.name}: {study.id}")


def _read(part: Part, settings: ReadSettings, catalogue: Catalogue) -> dict[str, list[Study]]:
    """Read a source with its name before each id and patient; what it tells goes along."""
    inner = load_studies(part.source, part.root, replace(settings, **part.settings))
    for broken in inner.broken:
        catalogue.add_broken(f"{part.name}: {broken.where}", broken.why)
    for rule, count in inner.left_out.items():
        of: dict[str, int] = dict(inner.left_out_of.get(rule, {}))
        for split, number in of.items():
            catalogue.leave_out(f"of {part.name} {rule}", number, split=split)
        catalogue.leave_out(f"of {part.name} {rule}", count - sum(of.values()))
    notes = [*inner.nothing.lines(), *inner.notes]
    catalogue.notes += [f"{part.name}: {line}" for line in notes]
    return {
        split: [
            replace(
                study,
                id=f"{part.name}/{study.id}",
                patient=study.patient and f"{part.name}/{study.patient}",
            )
            for study in of[: part.limit.get(split)]
        ]
        for split, of in inner.studies.items()
    }


def shares(weights: Sequence[float], total: int) -> list[int]:
    """Split `total` by the weights, one above 0: floors, then the largest remainders, first first.

    ValueError where no weight is above 0.
    """
    if not sum(weights) > 0:
        raise ValueError(f"weights {list(weights)}; wanted at least one above 0")
    exact = [total * weight / sum(weights) for weight in weights]
    counts = [math.floor(value) for value in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_rest[: total - sum(counts)]:
        counts[i] += 1
    return counts


def drawn(size: int, count: int, seed: Sequence[int]) -> list[tuple[int, int]]:
    """List `count` of `size` studies as (place, how often before), all before any comes again."""
    whole, rest = divmod(count, size)
    more = np.random.default_rng(seed).permutation(size)[:rest]
    pairs = [(i, again) for again in range(whole) for i in range(size)]
    return pairs + [(i, whole) for i in sorted(more.tolist())]


def table(mix: Mix, rows: Sequence[Mapping[str, Any]], recipe: Recipe) -> str:
    """Tabulate the main metrics of reports by source; those out of domain come last.

    rows: of a run's `predictions.jsonl`. The first column is all that was trained on; each has the
    interval of the scorecard. UserError for reports of no source of the mix, and for none at all.
    """
    inside = [part.name for part in mix.parts if part.weight != 0]
    outside = [part.name for part in mix.parts if part.weight == 0]
    source = [str(row["id"]).partition("/")[0] for row in rows]
    if foreign := next((s for s in source if s not in (*inside, *outside)), None):
        raise UserError(f"a report is of {foreign!r}, which is no source of the mix; name its own")
    columns = {"in domain": set(inside)} if len(inside) > 1 else {}
    columns |= {name: {name} for name in inside}
    columns |= {f"{name} (out of domain)": {name} for name in outside}
    judge = judge_of(recipe.eval, RewardService(recipe.reward), recipe.data.source)
    cells: dict[tuple[str, str], list[str]] = {}
    head, labels = ["system", "metric"], dict[str, str]()
    for title, members in columns.items():
        own = [row for row, name in zip(rows, source, strict=True) if name in members]
        if not own:
            continue
        head.append(title)
        card, _ = judge.card(*_pairs(own), [GIVEN_TRUTH])
        labels |= {m.key: m.label for m in card.metrics if metric_of(m.key).main}
        for system, values in card.groups[0].systems.items():
            for key in labels:
                shown = "-"
                if value := values.get(key):
                    shown = f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"
                column = cells.setdefault((system, key), [])
                column += ["-"] * (len(head) - 3 - len(column)) + [shown]
    if len(head) == 2:
        raise UserError("there is no report; evaluate a run of this mix first")
    body = [[system, labels[key], *column] for (system, key), column in cells.items()]
    return "\n".join(aligned([head, *body])) + "\n"


def _pairs(rows: Sequence[Mapping[str, Any]]) -> tuple[Pairs, np.ndarray]:
    systems: dict[str, list[str]] = {}
    for row in rows:
        systems.setdefault(row["system"], []).append(row["report"])
    first = [row for row in rows if row["system"] == rows[0]["system"]]
    texts = [row["reference"] for row in first]
    references = [t if isinstance(t, list) else [t] if t else [] for t in texts]
    patients = [str(row.get("patient", "")) for row in first]
    pairs = Pairs([row["id"] for row in first], references, systems, patients=patients)
    return pairs, np.array([row["labels_true"] for row in first], dtype=np.int8)


def main(words: Sequence[str] | None = None) -> int:
    """Print the table of a run; status 2 and one line for bad input."""
    parser = argparse.ArgumentParser(description="A run's scorecard by source of its mix.")
    parser.add_argument("mix", type=Path)
    parser.add_argument("run", type=Path, help="directory with predictions.jsonl")
    parser.add_argument("settings", nargs="*", help="as eval.bootstrap=100")
    options = parser.parse_args(words)
    file = options.run / "predictions.jsonl"
    try:
        lines = read_whole_text(file).splitlines()
        rows = [json_reader.parse(line, dict) for line in lines]
        recipe = load_config(Recipe, None, options.settings)
        print(table(read_mix(options.mix), rows, recipe), end="")
    except (OSError, ValueError, KeyError) as error:
        print(f"{file}: no reports can be read ({error!r}); evaluate the run first")
        return 2
    except UserError as error:
        print(error)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
