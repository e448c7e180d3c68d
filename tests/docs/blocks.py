"""Finds the code blocks of pages, and checks what can be checked without running them.

A fence names its language; `no-run` after it marks a block that needs a GPU or data, which is
parsed alone, and `error` the text of an error. A block whose first line is a comment with a file's
name is that file, and so is one with a title.
"""

from __future__ import annotations

import ast
import csv
import dataclasses
import importlib
import importlib.util
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from rrgtrain import cli
from rrgtrain.algorithms.base import no_check, no_completion, no_preparation
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.schema import Recipe
from rrgtrain.schema.keys import kind_at

ROOT = Path(__file__).parents[2]
LANGUAGES = {"python", "bash", "yaml", "toml", "json", "jsonl", "csv", "text"}
FLAGS = {"", "no-run", "error"}
# Blocks that need a GPU, a data set or weights; at most so many.
NOT_RUN = 10

_FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1``` *$", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r' title="([\w.-]+)"')
_NAMED = re.compile(r"^# (\./)?([\w-]+\.(?:py|yaml))\b")
_SPAN = re.compile(r"(?<!`)(`+)([^`]+)\1(?!`)")
_COMMANDS = "rrgtrain|make|pip|python|torchrun"
_SECTIONS = "|".join(field.name for field in dataclasses.fields(Recipe))
_SPANS = {
    "command": re.compile(rf"([A-Z_]+=\S* )*({_COMMANDS})( |$)"),
    "setting": re.compile(rf"({_SECTIONS})\.[a-z][\w.]*(=|$)"),
    "call": re.compile(r"((rrg\w+\.)[\w.]+|complete|check|prepare)\([^()]*\)$"),
}
# What a value stands for that a reader fills in.
_FILLED_IN = re.compile(r"[A-Z]{3,}|\.\.\.|…|:")
# The least that makes a verb a whole command.
_WHOLE = {
    **dict.fromkeys(("rl", "select"), "--from A --out B"),
    **{"sft": "--out B", "eval": "--from A --out B", "report": "B"},
    **{"generate": "A B --out C", "data": "--out B", "plan": "demo"},
}
# Functions of the form that an algorithm's part has.
ALGORITHM = {"complete": no_completion, "check": no_check, "prepare": no_preparation}


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    flag: str
    title: str
    text: str

    @property
    def at(self) -> str:
        """Name page and line."""
        return f"{self.page.name}:{self.line}"

    @property
    def file(self) -> str | None:
        """Return the name of the file that the block is, if it says so."""
        named = _NAMED.match(self.text)
        return named[2] if named else self.title or None


def pages() -> list[Path]:
    """List README, that of the package for other loops, and the pages of docs."""
    first = [ROOT / "README.md", ROOT / "python" / "rrgpolicy" / "README.md"]
    return [*first, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(page: Path) -> list[Block]:
    """Find the blocks of a page."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        indent, info = match[1], match[2].strip()
        title = _TITLE.search(info)
        language, _, flag = _TITLE.sub("", info).partition(" ")
        body = re.sub(rf"^{indent}", "", match[3], flags=re.MULTILINE)
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(page, line, language, flag, title[1] if title else "", body))
    return found


def spans_of(page: Path) -> list[Block]:
    """Find the inline code of a page that begins as a command, a setting or a call of ours does."""
    text = page.read_text(encoding="utf-8")
    text = _FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)
    found = []
    for match in _SPAN.finditer(text):
        words = " ".join(match[2].split())
        kind = next((name for name, form in _SPANS.items() if form.match(words)), "")
        if kind:
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(page, line, kind, "", "", words))
    return found


def commands(text: str) -> list[list[str]]:
    """Split a bash block into the words of its commands; comments and empty lines are left out."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def violations(of_pages: Sequence[Path]) -> Iterator[str]:
    """Yield what is wrong with the blocks of the pages, as far as it shows without running them."""
    blocks = [block for page in of_pages for block in blocks_of(page)]
    for span in (span for page in of_pages for span in spans_of(page)):
        try:
            with TemporaryDirectory() as folder:
                _check_span(span, blocks, Path(folder))
        except (UserError, ValueError, ImportError, AttributeError) as error:
            yield f"{span.at}: `{span.text}`: {error}"
    for block in blocks:
        if block.language not in LANGUAGES or block.flag not in FLAGS:
            info = f"{block.language} {block.flag}".strip()
            yield f"{block.at}: ```{info}; wanted one of {', '.join(sorted(LANGUAGES))}"
            continue
        try:
            with TemporaryDirectory() as folder:
                _check(block, blocks, Path(folder))
        except (UserError, SyntaxError, ValueError, yaml.YAMLError, ImportError) as error:
            yield f"{block.at}: {error}"
    not_run = [block.at for block in blocks if block.flag == "no-run"]
    if len(not_run) > NOT_RUN:
        yield f"{len(not_run)} blocks carry no-run, at most {NOT_RUN}: {', '.join(not_run)}"


def _check(block: Block, blocks: list[Block], folder: Path) -> None:
    if block.language == "python":
        _check_imports(ast.parse(block.text))
    elif block.language == "yaml":
        path = folder / "recipe.yaml"
        path.write_text(block.text)
        load_config(Recipe, path, [])
    elif block.language == "bash":
        for words in commands(block.text):
            check_command(words, _files(block.page, blocks), folder)
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "json":
        json.loads(block.text)
    elif block.language == "jsonl":
        for line in block.text.splitlines():
            json.loads(line)
    elif block.language == "csv":
        widths = {len(row) for row in csv.reader(block.text.splitlines())}
        if len(widths) != 1:
            raise ValueError(f"rows of {sorted(widths)} columns")


def _files(page: Path, blocks: list[Block]) -> dict[str, str]:
    """Map the names of the files that blocks of a page are to their texts."""
    return {block.file: block.text for block in blocks if block.page == page and block.file}


def _check_span(span: Block, blocks: list[Block], folder: Path) -> None:
    """Raise what is wrong with a span: a command is whole, but for one that names a verb alone."""
    if span.language == "command":
        words = shlex.split(span.text)
        if words[0] == "rrgtrain" and len(words) == 2 and not words[1].startswith("-"):
            cli.understood([words[1], *_WHOLE.get(words[1], "").split()])
        elif len(words) > 1 and "--help" not in words:
            check_command(words, _files(span.page, blocks), folder)
    elif span.language == "setting":
        key, equals, value = span.text.partition("=")
        if not equals or _FILLED_IN.search(value):
            kind_at(Recipe, key, span.text)
        else:
            load_config(Recipe, None, [span.text])
    else:
        name, _, arguments = span.text.rstrip(")").partition("(")
        named = [word.strip() for word in arguments.split(",") if word.strip()]
        wanted = list(inspect.signature(_called(name)).parameters)
        if named != wanted[: len(named)]:
            raise ValueError(f"{name} is called with {', '.join(wanted)}")


def _called(name: str) -> Any:
    """Return the function of a dotted name; of an algorithm's part, one of its form."""
    if name in ALGORITHM:
        return ALGORITHM[name]
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(module), function)


def _check_imports(tree: ast.Module) -> None:
    """Raise ImportError for a name of our own packages that is not there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rrg"):
            for alias in node.names:
                if not _holds(str(node.module), alias.name):
                    raise ImportError(f"{node.module} has no {alias.name}")


def _holds(module: str, name: str) -> bool:
    """Tell if a module has a name; of one that needs another trainer, if its source does."""
    if not module.startswith("rrgtrain.integrations."):
        return hasattr(importlib.import_module(module), name)
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return False
    return (
        re.search(rf"^(class|def) {name}\b|\"{name}\"", Path(spec.origin).read_text(), re.M)
        is not None
    )


def check_command(words: list[str], files: dict[str, str], folder: Path) -> None:
    """Raise ValueError or UserError for a command that this repository does not know.

    `files` are those that blocks of the page have written, by name.
    """
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if words[0] == "torchrun":
        words = ["rrgtrain", *words[words.index("rrgtrain") + 1 :]]
    if words[0] == "rrgtrain":
        _check_rrgtrain(words[1:], files, folder)
    elif words[0] == "make":
        targets = re.findall(r"^\.PHONY:(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        unknown = [w for w in words[1:] if "=" not in w and w not in targets[0].split()]
        if unknown:
            raise ValueError(f"make {unknown[0]} is no target of the Makefile")
        room = next((w[5:] for w in words if w.startswith("ROOM=")), None)
        alone = room in ("peers", "step", "ranks", "rewards", "gpu-short")
        if room is not None and not alone and not (ROOT / "bench" / f"{room}.py").is_file():
            raise ValueError(f"make bench ROOM={room}: there is no bench/{room}.py")
    elif words[0] == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = re.findall(r"\.\[([\w,]+)\]", " ".join(words))
        unknown = set(",".join(extras).split(",")) - {"", *project["optional-dependencies"]}
        if unknown:
            raise ValueError(f"{', '.join(unknown)} is no extra of pyproject.toml")
    elif words[0] == "python":
        module = importlib.util.find_spec(words[2]) if words[1] == "-m" else None
        if module is not None and module.submodule_search_locations:
            module = importlib.util.find_spec(f"{words[2]}.__main__")
        path = (
            ROOT / words[1] if words[1] != "-m" else Path(module.origin or "") if module else None
        )
        if path is None or not path.is_file():
            raise ValueError(f"{words[1] if words[1] != '-m' else words[2]} is no module")
        source = path.read_text(encoding="utf-8")
        for name in re.findall(r"^from experiments\.(\w+) import", source, re.M):
            source += (ROOT / "experiments" / f"{name}.py").read_text(encoding="utf-8")
        unknown = [
            w for w in words[2:] if w.startswith("--") and f'"{w.partition("=")[0]}"' not in source
        ]
        if unknown:
            raise ValueError(f"{unknown[0]} is no option of {path.name}")
    else:
        raise ValueError(f"{words[0]} is a command that nothing checks; leave it out or check it")


def _check_rrgtrain(words: list[str], files: dict[str, str], folder: Path) -> None:
    options = cli.understood(words)
    if options.verb == "keys":
        cli.COMMANDS["keys"].run(options)
    if getattr(options, "overrides", None) is None:
        return
    for override in options.overrides:
        key, _, value = override.partition("=")
        # terms of one's own have dots and a colon in their names
        kind_at(Recipe, key if ":" not in key else "reward.terms.own", override)
        if not value:
            raise UserError(f"{override}: wanted a value")
    if getattr(options, "resume", None) is None:
        recipe = getattr(options, "recipe", None)
        if recipe and (name := Path(recipe).name) in files:
            recipe = folder / name
            recipe.write_text(files[name])
        load_config(Recipe, recipe, options.overrides)
