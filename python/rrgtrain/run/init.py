"""Write a recipe, a reward and a README for data of one's own."""

from __future__ import annotations

import os.path
from dataclasses import fields
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rrgclinical.common.files import (
    atomic_write,
    make_parents,
    remove_empty,
    remove_left,
    require_file_place,
)
from rrgclinical.common.unfinished import MARK, is_left_by, mark, unmark
from rrgdata import ReadSettings
from rrgdata.load import usable
from rrgdata.sources import guess_source
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe
from rrgtrain.state.identity import digest_of

RECIPE, REWARD, README = "mine.yaml", "mine.py", "README.md"
_TERM, _WEIGHT = "mine:brevity", 0.5
_REWARD_TEXT = '''"""A term of the reward: change it, or add others and name them in mine.yaml."""


def brevity(report: str, reference: str) -> float:
    """1 up to the reference's length, less beyond it."""
    words, wanted = len(report.split()), len(reference.split())
    return min(1.0, wanted / max(1, words))
'''


def begin_experiment(folder: Path, root: Path, overrides: list[str]) -> list[str]:
    """Write mine.yaml, mine.py and README.md into `folder` for the data at `root`.

    overrides: settings of data, which the recipe keeps.
    Returns the three commands of README.md. Raises UserError for data that is broken or has no
    training reports, for another setting, and where one of the files is there that is not of the
    same call, killed before its end.
    """
    other = next((o for o in overrides if not o.startswith("data.")), None)
    if other is not None:
        raise UserError(f"{other!r} is no setting of data; write it into {folder / RECIPE} later")
    names = (RECIPE, REWARD, README, MARK)
    taken = [name for name in names if os.path.lexists(folder / name)]
    call = digest_of([os.path.abspath(root), overrides])
    if taken and not (is_left_by(folder, call) and len(taken) < len(names)):
        raise UserError(f"{folder} holds {', '.join(taken)} already; name another directory")
    require_file_place(folder / RECIPE)
    asked = load_config(Recipe, None, overrides).data
    named = any(override.startswith("data.source=") for override in overrides)
    source = asked.source if named else guess_source(root)
    settings = ReadSettings(**{f.name: getattr(asked, f.name) for f in fields(ReadSettings)})
    images_named = any(override.startswith("data.images=") for override in overrides)
    images, catalogue = usable(source, root, settings, images_named=images_named, skip=asked.skip)
    sizes = {split: len(studies) for split, studies in catalogue.studies.items() if studies}
    data = {"source": source, "root": os.path.abspath(root), "images": images}
    given = OmegaConf.to_container(OmegaConf.from_dotlist(overrides)) if overrides else {}
    recipe = _recipe(source, {**data, **given.get("data", {}), "root": data["root"]})  # type: ignore[union-attr]
    commands = _commands(folder)
    made = make_parents(folder / RECIPE)
    files = {REWARD: _REWARD_TEXT, RECIPE: recipe, README: _readme(sizes, root, commands)}
    try:
        mark(folder, call)
        for name, text in files.items():
            remove_left(folder / name)
            atomic_write(folder / name, text)
    except BaseException:
        for name in files:
            (folder / name).unlink(missing_ok=True)
        unmark(folder)
        remove_empty(made)
        raise
    unmark(folder)
    return commands


def _recipe(source: str, data: dict[str, Any]) -> str:
    base = "table" if source == "table" else "editgrpo"
    terms = {**load_config(Recipe, base, []).reward.terms, _TERM: _WEIGHT}
    text = OmegaConf.to_yaml(
        OmegaConf.create({"base": base, "data": data, "reward": {"terms": terms}})
    )
    return f"# EditGRPO on data of one's own, with a reward of one's own ({REWARD}).\n{text}"


def _commands(folder: Path) -> list[str]:
    algorithm = load_config(Recipe, "editgrpo", []).rl.algorithm
    return [
        f"rrgtrain sft ./{RECIPE} --out runs/sft",
        f"rrgtrain rl ./{RECIPE} --from runs/sft/checkpoints/sft --out runs/rl",
        f"rrgtrain eval ./{RECIPE} --from runs/rl/checkpoints/{algorithm} --out runs/eval",
    ]


def _readme(sizes: dict[str, int], root: Path, commands: list[str]) -> str:
    studies = ", ".join(f"{count:,} {split}" for split, count in sizes.items())
    listed = "\n".join(commands)
    return f"""# An experiment on {root.name}

Studies: {studies}. In this directory:

```bash
{listed}
```

The first fine-tunes on the reports, the second trains by EditGRPO from there, the third scores
the held-out studies; each leaves a `report.html`. They train a policy of 1.5 M parameters, which
shows that data and reward work, and writes no report worth reading. For a model of a real size set
`policy.path` in `{RECIPE}` to its directory or name.

`{RECIPE}` is the recipe, `{REWARD}` a term of the reward. `rrgtrain keys` lists every setting,
`rrgtrain recipes` the other methods, `rrgtrain plan ./{RECIPE}` what a run needs.
"""
