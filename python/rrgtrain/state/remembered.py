"""Keeps beside a checkpoint's weights the settings that it was trained with.

A policy that learnt to write `<think>` blocks, or read another data set, cannot be told by its
weights; `eval`, `rl` and `select` find it in `rrgtrain.json`. A checkpoint may be a stranger's: it
names no code, and no prompt but the one that lies in it. Digests of files tell whether they are
those of before.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import Any

from rrgclinical.common import json_reader
from rrgclinical.common.errors import Stopped
from rrgclinical.common.files import WEIGHTS, file_digest
from rrgclinical.common.shown import one_line
from rrgdata.sources import every_source
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
_OF_DATA = "source mix root reports images boxes prior sections columns splits max_images"
KEYS = (
    *("policy.prompt", "policy.chat_template_kwargs", "reward.blocks"),
    *(f"data.{name}" for name in (*_OF_DATA.split(), "each_image")),
    *(key for key in key_names(Recipe) if key.startswith(PHANTOM)),
)
OF_GENERATE = ("policy.prompt", "policy.chat_template_kwargs", "reward.blocks", "data.images")


def to_remember(recipe: Recipe, work: Path) -> dict[str, Any]:
    """Collect what a checkpoint keeps of its training: KEYS, the policy's base, its prompt's text.

    work: the directory of the run, where a tiny policy's base lies.
    """
    drawn = recipe.data.source == "phantom"
    values = {k: _at(recipe, k) for k in KEYS if drawn or not k.startswith(PHANTOM)}
    for key in PLACES:
        if values[key] is not None:
            values[key] = str(Path(values[key]).expanduser().resolve())
    for part in values["data.mix"].values():
        part["reports"] = part["reports"] and str(Path(part["reports"]).expanduser().resolve())
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
        return known_base(_adapted(start), work)
    return str(path.resolve()) if path.is_dir() else start


def _adapted(adapter: str) -> str:
    from rrgpolicy.model.load import base_of_adapter  # seconds, in which a wrong word can be told

    return base_of_adapter(adapter)


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
    if recipe.data.source != kept.get("data.source", recipe.data.source):
        # what is said of another data set means nothing
        kept = {k: v for k, v in kept.items() if k == "data.source" or not k.startswith("data.")}
        recipe = load({k: v for k, v in kept.items() if k != "data.source"})
    for key in _reaching_out(checkpoint, recipe):
        if (value := _at(recipe, key)) != _at(plain, key):
            what = "code" if key.startswith("data.") else "a file outside the checkpoint"
            raise UserError(
                f"{checkpoint}/{FILE} names {what}, {key}={value}, which a checkpoint must not "
                f"choose; write {key}=... yourself, the same if you know it to be yours"
            )
    taken = [k for k, v in kept.items() if _at(recipe, k) == v != _at(plain, k)]
    other = [k for k, v in kept.items() if _differs(k, v, _at(recipe, k))]
    drawn = [k for k in other if k.startswith(PHANTOM)]
    if taken and os.environ.get("RANK", "0") == "0":
        listed = ", ".join(f"{key}={kept[key]}" for key in taken)
        print(one_line(f"rrgtrain: as {checkpoint} was trained: {listed}"), file=sys.stderr)
    # phantoms of another kind differ in much, and are told in one line
    for keys in [*([k] for k in other if k not in drawn), *([drawn] if drawn else [])]:
        before = ", ".join(f"{key}={kept[key]}" for key in keys)
        now = ", ".join(f"{key}={_at(recipe, key)}" for key in keys)
        warnings.warn(
            f"{checkpoint} was trained with {before}, and is used with {now}", stacklevel=2
        )
    return recipe


def _at(recipe: Recipe, key: str) -> Any:
    """Return a setting's value as JSON has it."""
    value = attrgetter(key)(recipe)
    return {n: asdict(part) for n, part in value.items()} if key == "data.mix" else value


def _reaching_out(checkpoint: str, recipe: Recipe) -> list[str]:
    """List the keys whose value would import a module, or open a prompt outside the checkpoint."""
    data, prompt = recipe.data, recipe.policy.prompt
    keys = ["data.source"] if data.source not in (*every_source(), "phantom", "mix") else []
    keys += [] if {part.source for part in data.mix.values()} <= {*every_source()} else ["data.mix"]
    return keys + ["policy.prompt"] * (prompt not in (own_prompt(checkpoint), *PROMPT_STYLES))


def _differs(key: str, before: Any, now: Any) -> bool:
    """Tell whether a setting means something else now; a place may be another one."""
    if key == "policy.prompt" and not {before, now} & set(PROMPT_STYLES):
        files = [Path(name).expanduser() for name in (before, now)]
        if all(file.is_file() for file in files):
            return files[0].read_bytes() != files[1].read_bytes()
    return bool(before != now) and key not in PLACES


BASE_FILES = "base_files"
"""Key of rrgtrain.json for digests of the config and weights that an adapter was trained on."""
_READ = (*WEIGHTS, ".json", ".jinja", ".txt", ".model")


def file_digests(checkpoint: str) -> dict[str, str]:
    """Map the files of a checkpoint directory to digests; empty for a hub name.

    Of an adapter, the files of its base too; UserError where it names none.
    """
    path = Path(checkpoint).expanduser()
    if not path.is_dir():
        return {}
    from rrgpolicy.model.whole import fetch

    files = [f for f in sorted(path.iterdir()) if f.suffix in _READ and f.name != FILE]
    digests = fetch(checkpoint, lambda: {f.name: file_digest(f) for f in files if f.is_file()})
    if (path / "adapter_config.json").is_file():
        base = file_digests(_adapted(str(path)))
        digests |= {f"{name} of its base": digest for name, digest in base.items()}
    return digests


def base_files(checkpoint: str | Path) -> dict[str, dict[str, str]]:
    """Digest an adapter's base, as rrgtrain.json keeps it; empty where none can be read here."""
    try:
        digests = _of_base(str(checkpoint))
    except Stopped:
        raise
    except (UserError, OSError):  # no reason to lose what was trained
        return {}
    return {BASE_FILES: digests} if digests else {}


def require_base(checkpoint: str) -> None:
    """Raise UserError for an adapter whose base has other files than when it was trained."""
    file = Path(checkpoint).expanduser() / FILE
    before = read_remembered(file).get(BASE_FILES) if file.is_file() else None
    if not isinstance(before, dict):
        return
    now = _of_base(checkpoint)
    if now and (other := [name for name, digest in before.items() if now.get(name) != digest]):
        raise UserError(
            f"{_adapted(checkpoint)} has other files than when the adapter in {checkpoint} "
            f"was trained on it; put them back: {other[0]}"
        )


def _of_base(checkpoint: str) -> dict[str, str]:
    """Map the config and weights of an adapter's base to digests; empty for a hub name."""
    path = Path(checkpoint).expanduser()
    if not (path / "adapter_config.json").is_file():
        return {}
    files = file_digests(_adapted(str(path)))
    return {n: d for n, d in files.items() if n == "config.json" or Path(n).suffix in WEIGHTS}
