"""`rrgtrain generate`: reports of images that have none."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rrgtrain.commands.command import ON_GPUS, Command, add_settings

if TYPE_CHECKING:
    from rrgtrain.schema import Recipe

RECIPE = "editgrpo"


def _words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("start", metavar="CHECKPOINT", help="checkpoint directory or hub name")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="directory of the images")
    add_settings(parser, "settings (see `rrgtrain keys`)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("reports.jsonl"),
        metavar="FILE",
        help="JSONL of the reports; default: reports.jsonl. A second call adds what it lacks",
    )
    parser.add_argument(
        "--study",
        choices=("file", "folder"),
        default="file",
        help="one study an image (default), or the images of one folder a study",
    )
    parser.add_argument(
        "--context",
        type=Path,
        metavar="CSV",
        help="columns id or path, and any of indication, technique, comparison",
    )
    parser.add_argument("--recipe", default=RECIPE, help=f"name or YAML file; default: {RECIPE}")


def _run(options: argparse.Namespace) -> int:
    from rrgpolicy.ranks import ranks
    from rrgtrain.commands.started import run_on_ranks
    from rrgtrain.run.generate import GenerateRequest, generate_reports
    from rrgtrain.state.remembered import OF_GENERATE

    def write(recipe: Recipe, out: Path, *, resume: bool) -> None:
        with ranks.propagate_errors():
            generate_reports(
                recipe, GenerateRequest(options.folder, out, options.study, options.context)
            )

    return run_on_ranks(COMMAND, options, write, remembered=OF_GENERATE)


COMMAND = Command(
    "generate",
    "write reports of the images below a directory",
    _words,
    _run,
    gpus=ON_GPUS,
    spread=True,
)
