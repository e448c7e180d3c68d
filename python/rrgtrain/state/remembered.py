"""Keeps beside a checkpoint's weights the settings that it was trained with.

A policy that learnt to write `<think>` blocks, or read another data set, cannot be told by its
weights; `eval`, `rl` and `select` find it in `rrgtrain.json`. A checkpoint may be a stranger's: it
names no code, and no prompt but the one that lies in it.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from rrgclinical.common import json_reader
from rrgclinical.common.shown import one_line
from rrgdata.sources import every_source
from rrgpolicy.model.load import base_of_adapter
from rrgtrain.config import interpolated
from rrgtrain.errors import UserError
from rrgtrain.schema import PROMPT_STYLES, Recipe
from rrgtrain.schema.keys import key_names

FILE = "rrgtrain.json"
BASE = "base"
PROMPT_FILE = "prompt.txt"
"""Copy of `policy.prompt=FILE` in a checkpoint; the text itself among the values before that."""
# Where a run keeps the tiny policy that it has built.
TINY, INIT = "tiny", "init"
PHANTOM = "data.phantom."
PLACES = ("data.root", "data.reports")
_OF_DATA = "source root reports images prior sections columns splits max_images each_image"
KEYS = (
    *("policy.prompt", "policy.chat_template_kwargs", "reward.blocks"),
    *(f"data.{name}" for name in _OF_DATA.split()),
    *(key for key in key_names(Recipe) if key.startswith(PHANTOM)),
)
OF_GENERATE = ("policy.prompt", "policy.chat_template_kwargs", "reward.blocks", "data.images")


def to_remember(recipe: Recipe, work: Path) -> dict[str, Any]:
    """Collect what a checkpoint keeps of its training: KEYS, the policy's base, its prompt's text.

    work: the directory of the run, where a tiny policy's base lies.
    """
    drawn = recipe.data.source == "phantom"
    values = {k: attrgetter(k)(recipe) for k in KEYS if drawn or not k.startswith(PHANTOM)}
    for key in PLACES:
        if values[key] is not None:
            values[key] = str(Path(values[key]).expanduser().resolve())
    values[BASE] = known_base(recipe.policy.path, work)
    # its value may be a secret, and the next reader's environment is another one
    values |= interpolated(recipe, values.keys() & set(KEYS))
    if recipe.policy.prompt not in PROMPT_STYLES:
        # read now: the file may be gone when the first checkpoint is written
        values[PROMPT_FILE] = Path(recipe.policy.prompt).expanduser().read_text(encoding="utf-8")
        values["policy.prompt"] = PROMPT_FILE
    return values


def write_remembered(directory: Path, values: Mapping[str, Any]) -> None:
    """Write the values of `to_remember` to a checkpoint's rrgtrain.json, the prompt beside it."""
    settings = {key: value for key, value in values.items() if key != PROMPT_FILE}
    if PROMPT_FILE in values:
        (directory / PROMPT_FILE).write_text(values[PROMPT_FILE], encoding="utf-8")
    (directory / FILE).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def base_of(start: str, work: Path) -> str:
    """Find the checkpoint that a policy was before any training of this trainer.

    start: a checkpoint directory, a hub name, or "tiny", which lies in `work`. One that the trainer
        did not write is its own base, an adapter's is what the adapter names.

    Raises:
        UserError: a checkpoint of the trainer that does not say.
    """
    base = known_base(start, work)
    if base is None:
        raise UserError(
            f"nothing in {start} says what it was trained from; name that checkpoint, as in "
            "rl.reference=PATH"
        )
    return base


def known_base(start: str, work: Path = Path()) -> str | None:
    """Find what `base_of` does, or None; only "tiny" needs `work`."""
    if start == TINY:
        return str((work / INIT).resolve())
    path = Path(start).expanduser()
    if (path / FILE).is_file():
        return read_remembered(path / FILE).get(BASE)
    if (path / "adapter_config.json").is_file():
        return known_base(base_of_adapter(start), work)
    return str(path.resolve()) if path.is_dir() else start


def remembered(checkpoint: str | Path) -> dict[str, Any]:
    """Read what `save_policy` wrote; empty for a hub name or a checkpoint from elsewhere.

    UserError for a file that is not JSON with a mapping.
    """
    path = Path(checkpoint).expanduser() / FILE
    if not os.path.lexists(path):
        return {}
    values = read_remembered(path)
    known = {key: values[key] for key in KEYS if key in values}
    if asking := [key for key, value in known.items() if "${" in json.dumps(value)]:
        # of a checkpoint from anywhere, they would read this machine's environment
        warnings.warn(
            f"{path}: {', '.join(asking)} stands for something else (${{...}}) and is not read; "
            "set it yourself",
            stacklevel=2,
        )
    if known.get("policy.prompt") == PROMPT_FILE:
        known["policy.prompt"] = own_prompt(checkpoint) or PROMPT_FILE
    return {key: value for key, value in known.items() if key not in asking}


def own_prompt(checkpoint: str | Path) -> str | None:
    """Find a checkpoint's own prompt; None without one, or where it is a link."""
    path = Path(os.path.abspath(Path(checkpoint).expanduser())) / PROMPT_FILE
    return str(path) if path.is_file() and not path.is_symlink() else None


def read_remembered(path: Path) -> dict[str, Any]:
    """Read a checkpoint's rrgtrain.json; UserError where it is none."""
    try:
        return dict(json_reader.read(path, dict))
    except (ValueError, OSError) as error:
        raise UserError(
            f"{path} cannot be read ({error}); delete it, and set policy.prompt, reward.blocks and "
            "data.source yourself"
        ) from error


def as_trained(
    checkpoint: str, load: Callable[[Mapping[str, Any]], Recipe], keys: Sequence[str] = KEYS
) -> Recipe:
    """Make the recipe by `load`; those of `keys` that nobody wrote are as in `checkpoint`.

    `load` takes defaults that anything written in a recipe or override goes before. One line on
    standard error names what was taken over, a warning what differs. Raises UserError where the
    checkpoint, and nobody else, names code or a prompt outside itself.
    """
    plain, known = load({}), remembered(checkpoint)
    kept = {key: known[key] for key in keys if key in known}
    recipe = load(kept)
    for key in _reaching_out(checkpoint, kept):
        if attrgetter(key)(recipe) == kept[key] != attrgetter(key)(plain):
            what = "code" if key == "data.source" else "a file outside the checkpoint"
            raise UserError(
                f"{checkpoint}/{FILE} names {what}, {key}={kept[key]}, which a checkpoint must not "
                f"choose; write {key}=... yourself, the same if you know it to be yours"
            )
    if recipe.data.source != kept.get("data.source", recipe.data.source):
        # what is said of another data set means nothing
        kept = {k: v for k, v in kept.items() if k == "data.source" or not k.startswith("data.")}
        recipe = load({k: v for k, v in kept.items() if k != "data.source"})
    taken = [k for k, v in kept.items() if attrgetter(k)(recipe) == v != attrgetter(k)(plain)]
    other = [k for k, v in kept.items() if _differs(k, v, attrgetter(k)(recipe))]
    drawn = [k for k in other if k.startswith(PHANTOM)]
    if taken and os.environ.get("RANK", "0") == "0":
        listed = ", ".join(f"{key}={kept[key]}" for key in taken)
        print(one_line(f"rrgtrain: as {checkpoint} was trained: {listed}"), file=sys.stderr)
    # phantoms of another kind differ in much, and are told in one line
    for keys in [*([k] for k in other if k not in drawn), *([drawn] if drawn else [])]:
        before = ", ".join(f"{key}={kept[key]}" for key in keys)
        now = ", ".join(f"{key}={attrgetter(key)(recipe)}" for key in keys)
        warnings.warn(
            f"{checkpoint} was trained with {before}, and is used with {now}", stacklevel=2
        )
    return recipe


def _reaching_out(checkpoint: str, values: Mapping[str, Any]) -> list[str]:
    """List the keys whose value would import a module, or open a prompt outside the checkpoint."""
    source, prompt = values.get("data.source", "phantom"), values.get("policy.prompt")
    keys = ["data.source"] if source not in (*every_source(), "phantom") else []
    return keys + ["policy.prompt"] * (prompt not in (None, own_prompt(checkpoint), *PROMPT_STYLES))


def _differs(key: str, before: Any, now: Any) -> bool:
    """Tell whether a setting means something else now; a place may be another one."""
    if key == "policy.prompt" and not {before, now} & set(PROMPT_STYLES):
        files = [Path(name).expanduser() for name in (before, now)]
        if all(file.is_file() for file in files):
            return files[0].read_bytes() != files[1].read_bytes()
    return bool(before != now) and key not in PLACES
