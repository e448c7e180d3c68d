"""The settings that a checkpoint was trained with and reads badly without, kept beside its weights.

A policy that learnt to write `<think>` blocks, or read another data set, cannot be told by its
weights; `eval`, `rl` and `select` find it in `rrgtrain.json`.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rrgclinical.shown import one_line
from rrgtrain.errors import UserError
from rrgtrain.policy.load import base_of_adapter
from rrgtrain.policy.prompt import STYLES
from rrgtrain.schema import Recipe

FILE = "rrgtrain.json"
BASE = "base"
# Where a run keeps the tiny policy that it has built.
TINY, INIT = "tiny", "init"
KEYS = ("policy.prompt", "reward.blocks", "data.source", "data.root", "data.images")


def remember(recipe: Recipe, directory: Path) -> None:
    """Writes what `recipe` says of KEYS, and the policy's base, into a checkpoint directory."""
    values = {key: _value(recipe, key) for key in KEYS}
    if values["data.root"] is not None:
        values["data.root"] = str(Path(values["data.root"]).expanduser().resolve())
    if values["policy.prompt"] not in STYLES:
        values["policy.prompt"] = str(Path(values["policy.prompt"]).expanduser().resolve())
    # the run's own directory is above that of its checkpoints
    values[BASE] = _known_base(recipe.policy.path, directory.resolve().parent.parent)
    (directory / FILE).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def base_of(start: str, work: Path) -> str:
    """The checkpoint that a policy was before any training of this trainer.

    start: a checkpoint directory, a hub name, or "tiny", which lies in `work`. One that the trainer
        did not write is its own base, an adapter's is what the adapter names.

    Raises:
        UserError: a checkpoint of the trainer that does not say, as those of before this was kept.
    """
    base = _known_base(start, work)
    if base is None:
        raise UserError(
            f"nothing in {start} says what it was trained from; name that checkpoint, as in "
            "rl.reference=PATH"
        )
    return base


def _known_base(start: str, work: Path) -> str | None:
    if start == TINY:
        return str((work / INIT).resolve())
    path = Path(start).expanduser()
    if (path / FILE).is_file():
        return _read(path / FILE).get(BASE)
    if (path / "adapter_config.json").is_file():
        return _known_base(base_of_adapter(start), work)
    return str(path.resolve()) if path.is_dir() else start


def remembered(checkpoint: str | Path) -> dict[str, Any]:
    """What `remember` wrote; empty for a hub name or a checkpoint from elsewhere.

    UserError for a file that is not JSON with a mapping.
    """
    path = Path(checkpoint).expanduser() / FILE
    if not path.is_file():
        return {}
    values = _read(path)
    return {key: values[key] for key in KEYS if key in values}


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{path} cannot be read ({error}); delete it, and set policy.prompt, reward.blocks and "
            "data.source yourself"
        ) from error


def as_trained(checkpoint: str, load: Callable[[Mapping[str, Any]], Recipe]) -> Recipe:
    """The recipe that `load` makes, with what neither it nor the user sets as `checkpoint` has it.

    `load` takes defaults that anything written in a recipe or override goes before. One line on
    standard error names what was taken over, a warning what differs.
    """
    plain, kept = load({}), remembered(checkpoint)
    recipe = load(kept)
    if kept and recipe.data.source != kept.get("data.source"):
        # the root and the views of another data set mean nothing
        kept = {k: v for k, v in kept.items() if k not in ("data.root", "data.images")}
        recipe = load({k: v for k, v in kept.items() if k != "data.source"})
    taken = [k for k, v in kept.items() if _value(recipe, k) == v != _value(plain, k)]
    other = [k for k, v in kept.items() if _value(recipe, k) != v and k != "data.root"]
    if taken and os.environ.get("RANK", "0") == "0":
        listed = ", ".join(f"{key}={kept[key]}" for key in taken)
        print(one_line(f"rrgtrain: as {checkpoint} was trained: {listed}"), file=sys.stderr)
    for key in other:
        warnings.warn(
            f"{checkpoint} was trained with {key}={kept[key]}, and is used with "
            f"{key}={_value(recipe, key)}",
            stacklevel=2,
        )
    return recipe


def _value(recipe: Recipe, key: str) -> Any:
    section, _, name = key.partition(".")
    return getattr(getattr(recipe, section), name)
