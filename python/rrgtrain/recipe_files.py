"""Where recipes live, and reading one with the line of every key."""

from __future__ import annotations

import difflib
import typing
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from rrgtrain.errors import UserError

# An installed wheel carries recipes inside the package; a checkout keeps them beside the packages.
_FOLDERS = (
    Path(__file__).resolve().parent / "recipes",
    Path(__file__).resolve().parents[2] / "recipes",
)


def recipe_folder() -> Path:
    """The folder of the recipes that ship with the project."""
    for folder in _FOLDERS:
        if folder.is_dir():
            return folder
    raise UserError(f"no recipes found in {_FOLDERS[0]} or {_FOLDERS[1]}; reinstall the package")


def recipe_names() -> list[str]:
    """Names that `find_recipe` knows, sub-folders included as `folder/name`."""
    folder = recipe_folder()
    return sorted(p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.yaml"))


def find_recipe(recipe: str | Path, beside: Path | None = None) -> Path:
    """The file of a recipe given by name or path.

    `beside` is the recipe that names this one as its base: names are looked up in its folder
    first, and relative paths start there.
    """
    text = str(recipe)
    as_file = text if text.endswith((".yaml", ".yml")) else f"{text}.yaml"
    folders = ([beside.parent] if beside else [Path()]) + [f for f in _FOLDERS if f.is_dir()]
    if as_file != text and beside is None:
        # A bare name means the shipped recipe, whatever lies in the working directory.
        folders.append(folders.pop(0))
    for folder in folders:
        if (folder / as_file).is_file():
            return (folder / as_file).resolve()
    where = f"{beside}: base" if beside else "recipe"
    if as_file == text:
        raise UserError(f"{where} {text!r}: no such file; give the path of a YAML file or a name")
    names = recipe_names()
    close = difflib.get_close_matches(text, names, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UserError(f"{where} {text!r} is unknown; {hint}recipes are: {', '.join(names)}")


def read_recipe(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """A recipe's mapping and the line of each dotted key (1 for keys it cannot place)."""
    try:
        text = path.read_text(encoding="utf-8")
        nodes = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(nodes, yaml.MappingNode | None):
            raise UserError(
                f"{path}: a recipe is a mapping of sections, as in `rl: {{steps: 100}}`; "
                f"this file holds a {type(nodes).__name__.removesuffix('Node').lower()}"
            )
        # OmegaConf's loader reads 1e-6 as a number and refuses a key written twice.
        tree = OmegaConf.create(text) if nodes is not None else OmegaConf.create({})
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise UserError(f"{path}{line}: broken YAML: {problem}") from error
    except RecursionError as error:
        raise UserError(f"{path}: nested too deeply; a recipe is a mapping of sections") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    lines: dict[str, int] = defaultdict(lambda: 1)
    if nodes is not None:
        _place(nodes, "", lines)
    return typing.cast(dict[str, Any], OmegaConf.to_container(tree)), lines


def _place(node: yaml.MappingNode, prefix: str, lines: dict[str, int]) -> None:
    for key, value in node.value:
        dotted = f"{prefix}{key.value}"
        lines[dotted] = key.start_mark.line + 1
        if isinstance(value, yaml.MappingNode):
            _place(value, f"{dotted}.", lines)
