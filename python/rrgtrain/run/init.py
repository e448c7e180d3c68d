"""Write a recipe, a reward and a README for data of one's own."""

from __future__ import annotations

import math
import os.path
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rrgclinical.common.files import atomic_write, make_parents, remove_empty, require_file_place
from rrgdata import ReadSettings, Study
from rrgdata.load import usable
from rrgdata.sources import guess_source
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe

RECIPE, REWARD, README = "mine.yaml", "mine.py", "README.md"
_TERM, _WEIGHT = "mine:brevity", 0.5
_REWARD_TEXT = '''"""A term of the reward: change it, or add others and name them in mine.yaml."""


def brevity(report: str, reference: str) -> float:
    """1 up to the reference's length, less beyond it."""
    words, wanted = len(report.split()), len(reference.split())
    return min(1.0, wanted / max(1, words))
'''
LEAST_TEST = 20
"""Test studies of which anything is said: of fewer, one study moves a share by five points."""
MOST_JUDGED = 500
"""Studies of a validation, and of the test."""


@dataclass(frozen=True)
class Start:
    """Name an experiment's policy, the recipe of its size, its settings, and a plan's verdict."""

    path: str = "tiny"
    size: str | None = None
    policy: dict[str, Any] = field(default_factory=dict)
    verdict: str = (
        "fits: 1.5 M parameters from scratch show that data and reward work, and write no report "
        "worth reading; --policy MODEL takes a real model; minutes: unmeasured, see --step"
    )


def begin_experiment(
    folder: Path, root: Path, overrides: list[str], choose: Callable[[], Start] = Start
) -> list[str]:
    """Write mine.yaml, mine.py and README.md into `folder` for the data at `root`.

    overrides: settings of data, which the recipe keeps. Paths in the recipe are relative to
    `folder`, so that both can be moved together.
    choose: looks at the machine and the policy, which takes seconds: after the table.
    Returns what README.md says: notes, each behind "# ", and the commands. Raises UserError for
    data that is broken or has no training reports, for another setting, and where one of the files
    is there.
    """
    other = next((o for o in overrides if not o.startswith("data.")), None)
    if other is not None:
        raise UserError(f"{other!r} is no setting of data; write it into {folder / RECIPE} later")
    names = (RECIPE, REWARD, README)
    if taken := [name for name in names if os.path.lexists(folder / name)]:
        raise UserError(f"{folder} holds {', '.join(taken)} already; name another directory")
    require_file_place(folder / RECIPE)
    asked = load_config(Recipe, None, overrides).data
    named = any(override.startswith("data.source=") for override in overrides)
    source = asked.source if named else guess_source(root)
    settings = ReadSettings(**{f.name: getattr(asked, f.name) for f in fields(ReadSettings)})
    images_named = any(override.startswith("data.images=") for override in overrides)
    images, catalogue = usable(source, root, settings, images_named=images_named, skip=asked.skip)
    data = {"source": source, "images": images}
    given = OmegaConf.to_container(OmegaConf.from_dotlist(overrides)) if overrides else {}
    data |= given.get("data", {}) | {"root": _beside(folder, root)}  # type: ignore[union-attr]
    studies, start = catalogue.studies, choose()
    notes = [start.verdict, *_judged(studies), *catalogue.lines()]
    commands = _commands(folder, [data["root"], *overrides], start, studies)
    lines = [*(f"# {note}" for note in notes), *commands]
    made = make_parents(folder / RECIPE)
    files = {
        REWARD: _REWARD_TEXT,
        RECIPE: _recipe(data, start, folder, studies),
        README: _readme(root, lines),
    }
    try:
        for name, text in files.items():
            atomic_write(folder / name, text)
    except BaseException:
        for name in files:
            (folder / name).unlink(missing_ok=True)
        remove_empty(made)
        raise
    return lines


def measured(folder: Path, policy: str | None) -> list[str]:
    """Train a step of each stage; add what it took to README.md."""
    from rrgtrain.run.model_check import measure_step  # seconds, which `init` alone need not take

    path = [] if policy is None else [f"policy.path={policy}"]
    recipe = load_config(Recipe, folder / RECIPE, path)
    lines = [f"# {line}" for stage in ("sft", "rl") for line in measure_step(recipe, stage)]
    text = (folder / README).read_text(encoding="utf-8")
    atomic_write(folder / README, text.replace("```bash\n", "\n".join(["```bash", *lines, ""]), 1))
    return lines


def _beside(folder: Path, path: Path) -> str:
    """Write a path as it is seen from the folder, wherever both are moved."""
    place = os.path.join(os.path.realpath(path.parent), path.name)
    path_from_there = os.path.relpath(place, os.path.realpath(folder))
    # a bare name could be one of the hub
    return path_from_there if path_from_there.startswith("..") else f"./{path_from_there}"


def _policy_path(folder: Path, start: Start) -> str:
    return _beside(folder, Path(start.path)) if Path(start.path).is_dir() else start.path


def _judged(studies: dict[str, list[Study]]) -> list[str]:
    """Count the studies, and say beforehand where those of the test are too few."""
    sizes = ", ".join(f"{len(of):,} {split}" for split, of in studies.items() if of)
    count = len(studies.get("test", []))
    if count >= LEAST_TEST:
        return [f"studies: {sizes}"]
    return [
        f"studies: {sizes}; {count} of the test are too few to judge anything, wanted "
        f"{LEAST_TEST} or more: a column `split` chooses them"
    ]


def _recipe(
    data: dict[str, Any], start: Start, folder: Path, studies: dict[str, list[Study]]
) -> str:
    base = "table" if data["source"] == "table" else "editgrpo"
    terms = {**load_config(Recipe, base, []).reward.terms, _TERM: _WEIGHT}
    tree: dict[str, Any] = {"base": base, "data": data, "reward": {"terms": terms}}
    if start.size is not None:
        tree |= {"base": [base, start.size], **_steps(studies)}
        tree["policy"] = {"path": _policy_path(folder, start), **start.policy}
        tree["reward"]["labeller"] = "rules"
    text = OmegaConf.to_yaml(OmegaConf.create(tree))
    return f"# EditGRPO on data of one's own, with a reward of one's own ({REWARD}).\n{text}"


def _steps(studies: dict[str, list[Study]]) -> dict[str, Any]:
    """Choose steps by the number of training studies: the fewer, the more often each is seen.

    SFT stops at its plateau before that. RL sees each study once, within bounds.
    """
    count = len(studies["train"])
    passes = 10 if count < 1_000 else 3 if count < 10_000 else 1
    batch = 16 if count < 1_000 else 64
    sft, rl = math.ceil(passes * count / batch), min(max(20, count // 8), 500)
    return {
        "sft": {"batch": batch, "steps": sft, "eval_every": max(1, sft // 10)},
        "rl": {"prompts": 8, "steps": rl, "eval_every": rl // 5},
        "eval": {"limit": MOST_JUDGED},
    }


def _commands(
    folder: Path, checked: list[str], start: Start, studies: dict[str, list[Study]]
) -> list[str]:
    algorithm = load_config(Recipe, "editgrpo", []).rl.algorithm
    sft, rl = "runs/sft/checkpoints/sft", f"runs/rl/checkpoints/{algorithm}"
    tuning = f"rrgtrain sft ./{RECIPE} --out runs/sft"
    policy = sft if start.size is None else shlex.quote(_policy_path(folder, start))
    check = f"rrgtrain check {policy} --recipe ./{RECIPE} --step"
    images = [image for study in studies.get("test", []) for image in study.images][:1]
    pictures = [shlex.quote(_beside(folder, image.path.parent)) for image in images]
    return [
        f"rrgtrain data check {shlex.join(checked)}",
        # a policy from scratch is there when it is fine-tuned
        *((tuning, check) if start.size is None else (check, tuning)),
        f"rrgtrain rl ./{RECIPE} --from {sft} --out runs/rl",
        f"rrgtrain eval ./{RECIPE} --from {rl} --out runs/eval",
        *(f"rrgtrain generate {rl} {place} --out runs/reports.jsonl" for place in pictures),
        "rrgtrain report runs/sft runs/rl --out runs/compare.html",
    ]


def _readme(root: Path, lines: list[str]) -> str:
    listed = "\n".join(lines)
    return f"""# An experiment on {root.name}

In this directory, which can be moved together with the data:

```bash
{listed}
```

`data check` looks at every image, `check --step` measures one update's memory and minutes, `sft`
fine-tunes on the reports, `rl` trains by EditGRPO from there, `eval` scores the held-out studies.
Each run leaves a `report.html`, and `report` lays them side by side.

`{RECIPE}` is the recipe, `{REWARD}` a term of the reward. `rrgtrain keys` lists every setting,
`rrgtrain recipes` the other methods, `rrgtrain plan ./{RECIPE}` what a run needs.
"""
