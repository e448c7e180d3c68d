"""Finds recipes by name and reads one with the place of every key.

A shipped file may hold more recipes below `arms:`, each by its name: variants of the file's own,
as the rows of a paper's table. Each is found as if it were a file beside that one.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rrgclinical.common.plain_yaml import Plain, check_size, read_yaml, value_of
from rrgclinical.common.resolve import nearest
from rrgtrain.errors import UserError

# An installed wheel carries recipes inside the package; a checkout keeps them beside the packages.
_FOLDERS = (
    Path(__file__).resolve().parent / "recipes",
    Path(__file__).resolve().parents[2] / "recipes",
)
# Lists the papers and their recipes; it lies beside the recipes and is none.
_PAPERS = "papers.yaml"
# Brackets within brackets that are read: a recipe holds sections of mappings and lists.
_DEEPEST = 64
# What a newcomer begins with.
FIRST = ("demo", "demo_small", "sft", "editgrpo", "table")


def recipe_folder() -> Path:
    """Return the folder of the recipes that ship with the project."""
    for folder in _FOLDERS:
        if folder.is_dir():
            return folder
    raise UserError(f"no recipes found in {_FOLDERS[0]} or {_FOLDERS[1]}; reinstall the package")


@dataclass(frozen=True)
class Paper:
    """Hold one paper of `papers.yaml`: its recipes, and the recipe of its size."""

    name: str
    size: str
    recipes: tuple[str, ...]


@functools.cache
def papers() -> tuple[Paper, ...]:
    """Read the papers of the shipped recipes."""
    listed = yaml.safe_load((recipe_folder() / _PAPERS).read_text(encoding="utf-8"))
    return tuple(Paper(name, p["size"], tuple(p["recipes"])) for name, p in listed.items())


def paper_of(recipe: str) -> str | None:
    """Return the paper that a shipped recipe belongs to, None where it belongs to none."""
    own = recipe.removeprefix("paper/")
    return next((paper.name for paper in papers() if own in paper.recipes), None)


def describe_recipe(name: str) -> str:
    """Describe a shipped recipe by the first line of its file or arm, a comment."""
    path = find_recipe(name)
    if _bases_by_rule(path):
        return f"`{path.stem}` at the size of its paper."
    text = _arms().get(path, path).read_text(encoding="utf-8")
    own = text.partition(f"\n  {path.stem}:\n")[2] if path in _arms() else text
    return own.partition("\n")[0].strip().removeprefix("# ")


@functools.cache
def _arms() -> dict[Path, Path]:
    """Map each arm, as the path that a file of its own would have, to the file that holds it."""
    held = {}
    for path in recipe_folder().rglob("*.yaml"):
        below = path.read_text(encoding="utf-8").partition("\narms:\n")[2]
        for name in re.findall(r"^  (\w+):$", below, re.MULTILINE):
            held[path.with_name(f"{name}.yaml")] = path
    return held


def _is_written(path: Path) -> bool:
    return path.is_file() or path in _arms()


def _bases_by_rule(path: Path) -> list[str] | None:
    """Return the bases that the rule of `papers.yaml` gives a file that does not exist, or None."""
    folder = recipe_folder()
    if path.parent != folder / "paper" or _is_written(path):
        return None
    if not _is_written(folder / path.name):
        return None
    size = next((paper.size for paper in papers() if path.stem in paper.recipes), None)
    return [size, f"../{path.stem}"] if size not in (None, path.stem) else None


def recipe_names() -> list[str]:
    """List the names that `find_recipe` knows, sub-folders included as `folder/name`.

    Those that a newcomer begins with come first, the others by the alphabet.
    """
    folder = recipe_folder()
    files = [path for path in folder.rglob("*.yaml") if path.name != _PAPERS]
    written = [path.relative_to(folder) for path in [*files, *_arms()]]
    by_rule = [f"paper/{name}" for paper in papers() for name in paper.recipes]
    found = {path.with_suffix("").as_posix() for path in written}
    found |= {name for name in by_rule if _bases_by_rule(folder / f"{name}.yaml")}
    return [*FIRST, *sorted(found - set(FIRST))]


def find_recipe(recipe: str | Path, beside: Path | None = None) -> Path:
    """Find the file of a recipe given by name or path.

    For an arm, and for `paper/NAME` by the rule of `papers.yaml`, it is a file that does not exist,
    and that `read_recipe` reads all the same. `beside` is the recipe that names this one as its
    base: names are looked up in its folder first, and relative paths start there.
    """
    text = str(recipe)
    as_file = text if text.endswith((".yaml", ".yml")) else f"{text}.yaml"
    folders = ([beside.parent] if beside else [Path()]) + [f for f in _FOLDERS if f.is_dir()]
    if as_file != text and beside is None:
        # A bare name means the shipped recipe, whatever lies in the working directory.
        folders.append(folders.pop(0))
    for folder in folders:
        path = (folder / as_file).resolve()
        if path in [shipped / _PAPERS for shipped in _FOLDERS]:
            continue
        if _is_written(path) or _bases_by_rule(path):
            return path
    where = f"{beside}: base" if beside else "recipe"
    if any((folder / text).is_dir() for folder in folders):
        raise UserError(f"{where} {text!r} is a directory; name a YAML file in it")
    if as_file == text:
        raise UserError(f"{where} {text!r}: no such file; give the path of a YAML file or a name")
    names = recipe_names()
    hint = nearest(text, names)
    more = f"and {len(names) - len(FIRST)} others, which `rrgtrain recipes` lists"
    raise UserError(f"{where} {text!r} is unknown; {hint}recipes are: {', '.join(FIRST)} {more}")


class _Shallow(yaml.SafeLoader):
    """Refuse brackets within brackets before the scanner's time grows with their square."""

    def fetch_flow_collection_start(self, token_class: type[yaml.Token]) -> None:
        if self.flow_level >= _DEEPEST:
            raise RecursionError
        super().fetch_flow_collection_start(token_class)


def read_recipe(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Read a recipe's mapping and the place of each dotted key, its file and line.

    Unquoted values are `Plain`. The line is 1 for keys that it cannot place."""
    by_rule = _bases_by_rule(path)
    if by_rule is not None:
        return {"base": by_rule}, defaultdict(lambda: f"{path}:1")
    if path in _arms():
        tree, places = _read_file(_arms()[path])
        arm = f"arms.{path.stem}."
        own = {key.removeprefix(arm): at for key, at in places.items() if key.startswith(arm)}
        return tree["arms"][path.stem], own
    tree, places = _read_file(path)
    if path in _arms().values():
        del tree["arms"]
    return tree, places


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        text = path.read_text(encoding="utf-8")
        check_size(text)
        nodes = yaml.compose(text, Loader=_Shallow)
        if not isinstance(nodes, yaml.MappingNode | None):
            raise UserError(
                f"{path}: a recipe is a mapping of sections, as in `rl: {{steps: 100}}`; "
                f"this file holds a {type(nodes).__name__.removesuffix('Node').lower()}"
            )
        tree = {} if nodes is None else read_yaml(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise UserError(f"{path}{line}: broken YAML: {problem}") from error
    except RecursionError as error:
        raise UserError(f"{path}: nested too deeply; a recipe is a mapping of sections") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    places: dict[str, str] = defaultdict(lambda: f"{path}:1")
    if nodes is not None:
        _place(nodes, path, "", places)
    return tree, places


def _place(node: yaml.MappingNode, path: Path, prefix: str, places: dict[str, str]) -> None:
    for key, value in node.value:
        dotted = f"{prefix}{key.value}"
        places[dotted] = f"{path}:{key.start_mark.line + 1}"
        if isinstance(value, yaml.MappingNode):
            _place(value, path, f"{dotted}.", places)


def named_recipes(recipe: str | Path) -> list[Path]:
    """Find the files of `a+b`; a path may hold a plus of its own."""
    text = str(recipe)
    if "+" in text and not Path(text).is_file():
        return [find_recipe(part) for part in text.split("+")]
    return [find_recipe(recipe)]


def chain_of(named: list[Path]) -> list[tuple[Path, Path, dict[str, Any], dict[str, str]]]:
    """Read the recipes and their bases, bases first, each once.

    Each is its file, the one of `named` that brings it, its mapping and the places of its keys.
    """
    chain: dict[Path, tuple[Path, dict[str, Any], dict[str, str]]] = {}

    def add(path: Path, above: tuple[Path, ...]) -> None:
        tree, lines = read_recipe(path)
        for base in _bases(path, tree.pop("base", None)):
            below = find_recipe(base, beside=path)
            if below in (*above, path):
                loop = " -> ".join(p.stem for p in [*above, path, below])
                raise UserError(f"{path}: base {base!r} closes a loop ({loop}); break it somewhere")
            if below not in chain:
                add(below, (*above, path))
        chain[path] = (*above, path)[0], tree, lines

    for path in named:
        if path not in chain:
            add(path, ())
    return [(path, *read) for path, read in chain.items()]


def _bases(path: Path, base: Any) -> list[str]:
    listed = base if isinstance(base, list) else [base]
    listed = [value_of(name) if isinstance(name, Plain) else name for name in listed]
    if listed == [None]:
        return []
    if not all(isinstance(name, str) for name in listed):
        raise UserError(
            f"{path}: base is {base!r}; name a recipe, as in `base: demo`, or a list of them"
        )
    return listed
