"""Describe a command: its words, its default recipe, and what runs it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rrgtrain.errors import UserError

ON_GPUS = "On N GPUs: torchrun --nproc-per-node N -m %(prog)s ..."
TRAINING_ON_GPUS = f"{ON_GPUS} scale.mode=fsdp2"
FROM_AND_OUT: Mapping[str, str] = {"start": "--from", "out": "--out"}
"""Words that a command needs where its parser has them, by their name there."""

Words = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True)
class Command:
    """One word of `rrgtrain`, and what stands behind it.

    A command's module loads nothing heavy before `run`, so that `rrgtrain --help` is quick.
    """

    name: str
    text: str
    """Its line in `rrgtrain --help`."""
    words: Words
    """Adds its options to a parser."""
    run: Callable[[argparse.Namespace], int]
    """Does it; returns the exit status. Bad input is a `UserError`."""
    recipe: str | None = None
    """Default recipe, of a command that takes one and settings."""
    gpus: str | None = None
    """What its help says of several GPUs."""
    spread: bool = False
    """Several processes of torchrun share it, and it leaves files."""
    anywhere: bool = False
    """It needs no working directory, and minds no other processes."""
    resumable: bool = False
    """`--resume` goes on with it."""
    needed: Mapping[str, str] = field(default_factory=lambda: FROM_AND_OUT)
    """Words that must be said, those without a default in its parser."""
    complete: Callable[[argparse.Namespace], Mapping[str, str] | None] = lambda _: None
    """Fills in what was left out; returns other words that are needed, if any."""


def add_resume(parser: argparse.ArgumentParser) -> None:
    """Add the option that goes on with a run."""
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="resume the run in this directory from its newest checkpoint",
    )


def add_start(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a checkpoint."""
    parser.add_argument("--from", dest="start", help="checkpoint directory or hub name")


def add_candidates(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the options that draw several reports of a study and choose one."""
    parser.add_argument("--candidates", type=int, metavar="N", help=text)
    parser.add_argument("--choose", choices=("mbr", "longest_agreeing"), help="default: mbr")
    by = "term of the reward that compares them; default: severity"
    parser.add_argument("--by", metavar="TERM", help=by)


def add_settings(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the settings of a command that has no recipe among its words."""
    parser.add_argument("overrides", nargs="*", metavar="key=value", help=text, default=[])


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option that prints for programs."""
    parser.add_argument("--json", action="store_true", help="print JSON")


FILE = "a readable file"
INPUTS: Mapping[str, str] = {
    **dict.fromkeys(("start", "checkpoint", "policy"), "a model"),
    **dict.fromkeys(("predictions", "references", "context", "reports", "against", "data"), FILE),
    **{"recipe": "a recipe", "resume": "a run", "image": "an image", "folder": "a directory"},
}
"""Words that name an input, by their name in the parser, and what they name."""


def require_inputs(options: argparse.Namespace) -> None:
    """Raise UserError for a path among the words that is not there; loads nothing slow."""
    for name, kind in INPUTS.items():
        said = getattr(options, name, None)
        for word in said if isinstance(said, list) else [said] if said else []:
            _require(kind, str(word) if Path(word).exists() else str(word).rpartition("=")[2])
    for key, _, value in (word.partition("=") for word in getattr(options, "overrides", [])):
        if key == "policy.path" and "$" not in value:
            _require("a model", value.strip("'\""))


def _require(kind: str, word: str) -> None:
    from rrgpolicy.settings import refuse_missing
    from rrgtrain.recipe_files import named_recipes

    path = Path(word).expanduser()
    if kind == "a model" and word != "tiny":
        refuse_missing(word)
    elif kind == "a recipe":
        named_recipes(word)
    elif kind == "a run" and not (path / "config.yaml").is_file():
        raise UserError(f"no run in {word} to resume; drop --resume to start one there")
    elif kind != "a model" and not path.exists():
        raise UserError(f"{word} does not exist; wanted {kind}")
