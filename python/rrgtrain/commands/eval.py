"""`rrgtrain eval`: scores of a checkpoint's reports, or of those in files."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrgclinical.common.errors import outside_line
from rrgtrain.commands.command import ON_GPUS, Command, add_candidates, add_start
from rrgtrain.errors import UserError

if TYPE_CHECKING:
    from rrgtrain.schema import Recipe

# A word that is FILE or NAME=FILE, as --predictions takes them, and no setting.
REPORTS = re.compile(r"([^.=]+=)?[^=]+\.(csv|jsonl?)")


def _words(parser: argparse.ArgumentParser) -> None:
    add_start(parser)
    parser.add_argument(
        "--predictions",
        action="append",
        metavar="[NAME=]FILE",
        help="reports to score instead: CSV, JSONL or JSON; say it once a system",
    )
    parser.add_argument(
        "--references", type=Path, metavar="FILE", help="their references, or labels, by id"
    )
    parser.add_argument(
        "--compare-implementations",
        action="store_true",
        help="print each metric of files by every package that is installed, too",
    )
    add_candidates(parser, "compare one drawn report and the one chosen of N with the greedy one")
    parser.add_argument("--out", type=Path, help="directory of the evaluation")


def _complete(options: argparse.Namespace) -> Mapping[str, str] | None:
    """Name the words that files need; UserError for a mixture of files and a checkpoint."""
    if not (options.predictions or options.references or options.compare_implementations):
        return None
    help_ = "see `rrgtrain eval --help`"
    if {options.start, options.candidates, options.choose, options.by} != {None}:
        words = "--from, --candidates, --choose and --by"
        raise UserError(f"a checkpoint or files are scored: leave out {words}; {help_}")
    more = next(filter(REPORTS.fullmatch, [options.recipe or "", *options.overrides]), None)
    if more is not None:
        raise UserError(f"{more} is no setting; say --predictions before each file; {help_}")
    return {"predictions": "--predictions", "references": "--references"}


def _run(options: argparse.Namespace) -> int:
    from rrgtrain.commands.started import run_on_ranks

    if options.predictions:
        return score_files(options)
    words = options.candidates, options.choose, options.by
    return run_on_ranks(COMMAND, options, partial(score, words=words))


def score(recipe: Recipe, out: Path, *, resume: bool = False, words: Any = (None,)) -> None:
    """Generate reports with a checkpoint and score them; words: of `chooser`."""
    from rrgclinical.common.unfinished import unmark
    from rrgpolicy.ranks import ranks
    from rrgtrain.run.choose import chooser
    from rrgtrain.run.outcome import finish
    from rrgtrain.run.stages import Stages

    with ranks.propagate_errors():
        if words[0] == 1:
            raise UserError("--candidates 1 compares nothing; use 2 or more, or leave it out")
        choose = chooser(recipe, *words)
    with Stages.open(recipe, out) as stages:
        name = Path(os.path.abspath(recipe.policy.path)).name
        written = {name: (stages.evaluate(name), None)}
        if choose is not None:
            drawn = stages.session.candidates(written[name][0].studies, choose)
            written |= {f"{name}, {kind}": (one, None) for kind, one in drawn.items()}
        finish(stages, f"evaluation of {name}", written, tables=True)
        if ranks.is_main():
            unmark(out)


def score_files(options: argparse.Namespace) -> int:
    """Score files of predictions; no policy is opened."""
    from rrgtrain.commands.started import recipe_of

    recipe = recipe_of(options)
    from rrgpolicy.ranks import ranks
    from rrgtrain.run.scorecards import evaluate_files

    if ranks.processes() > 1:
        raise UserError("files are scored by one process; start it without torchrun")
    try:
        if recipe.eval.limit is not None:
            raise UserError(
                f"eval.limit={recipe.eval.limit} is for checkpoints, files are scored whole; set "
                "it to null, and shorten the files"
            )
        files = options.predictions, options.references, options.out
        evaluate_files(recipe, *files, compare=options.compare_implementations)
    except OSError as error:
        line = outside_line(error) or f"{error.filename or options.out}: {error.strerror}"
        raise UserError(line) from error
    return 0


COMMAND = Command(
    "eval",
    "score reports of a checkpoint on the test split, or those of files",
    _words,
    _run,
    recipe="editgrpo",
    gpus=ON_GPUS,
    spread=True,
    complete=_complete,
)
