"""Start a command's work on every rank, and say how it goes on."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rrgclinical.common.errors import outside_line
from rrgclinical.common.shown import hidden, one_line
from rrgclinical.common.stop import stopping
from rrgdata.load import require_root
from rrgtrain.commands.command import Command
from rrgtrain.config import load_config, undone_keys
from rrgtrain.errors import Stopped, UserError
from rrgtrain.schema import Recipe
from rrgtrain.state.remembered import FILE, KEYS, as_trained
from rrgtrain.state.rundir import RunDir

# Of a name: the same command would meet it again, and nothing is to be waited for.
_FOR_GOOD = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR)
_ANEW = "nothing was saved: start it again with the same command"


def run_on_ranks(
    command: Command,
    options: argparse.Namespace,
    work: Callable[..., None],
    remembered: Sequence[str] = KEYS,
) -> int:
    """Load the recipe, meet the other ranks, and do the work; 0 on success.

    work: takes the recipe, the directory of --out, and `resume`, to go on with what is in it.
    remembered: settings that a checkpoint's own training gives their defaults. Bad input is a
    `UserError`, an end that can be gone on from a `Stopped`.
    """
    out, resumed = options.out, getattr(options, "resume", None)
    if resumed is not None:
        out, recipe = resumed, resumed_recipe(resumed, options.overrides)
    else:
        recipe = recipe_of(options, remembered)
    if command.name != "generate" and resumed is None:
        require_root(recipe.data)
    # seconds, in which what is wrong with the words is told already
    import torch

    from rrgpolicy.ranks import ranks
    from rrgtrain.log.logs import require_trackers
    from rrgtrain.state.identity import begun_in, identity_of, require_equal_start

    if command.name != "generate":
        require_trackers(recipe.log)
    cuda = recipe.policy.device == "cuda" or (
        recipe.policy.device == "auto" and torch.cuda.is_available()
    )
    mode = recipe.scale.mode
    if not command.resumable:
        # nothing is trained: whoever torchrun has started takes part, each with a whole policy
        mode = "fsdp2" if ranks.processes() > 1 else "none"
    with ranks.opened(mode, recipe.scale.timeout, cuda=cuda):
        if ranks.size() > 1:
            with ranks.propagate_errors():
                require_equal_start(identity_of(recipe))
        with ranks.propagate_errors():
            again = resumed is not None or ranks.from_main(
                lambda: command.resumable and begun_in(RunDir(options.out)) == recipe
            )
            with _advised(command, out):
                work(recipe, out, resume=again)
    return 0


@contextmanager
def _advised(command: Command, out: Path) -> Iterator[None]:
    """Add to an error that ends the work how it goes on."""
    try:
        yield
    except Exception as error:
        stop = error if isinstance(error, Stopped) else stopping.stop_in(error)
        if isinstance(stop, Stopped):
            stop.args = (f"{stop}; {how_to_go_on(command, out)}",)
            raise
        line = outside_line(error)
        if not line:
            raise
        if isinstance(error, OSError) and error.errno in _FOR_GOOD:
            raise UserError(line) from error
        advice = how_to_go_on(command, out)
        kind = UserError if advice == _ANEW else Stopped
        raise kind(f"{line}; {advice}") from error


def recipe_of(options: argparse.Namespace, remembered: Sequence[str] = KEYS) -> Recipe:
    """Load the recipe with its overrides; `--from` gives `remembered` keys their defaults."""
    for line in undone_keys(Recipe, options.recipe) if "+" in str(options.recipe) else ():
        warnings.warn(line, stacklevel=2)
    start = getattr(options, "start", None)
    if not start:
        return load_config(Recipe, options.recipe, options.overrides)
    origin = f"{start}/{FILE}"
    recipe = as_trained(
        start,
        lambda kept: load_config(
            Recipe, options.recipe, options.overrides, defaults=kept, origin=origin
        ),
        remembered,
    )
    recipe.policy.path = start
    return recipe


def resumed_recipe(path: Path, overrides: list[str]) -> Recipe:
    """Load the recipe of the run in `path`, with overrides that a resume may change.

    Raises UserError where there is no run, where it has ended, and for a setting that its
    checkpoints depend on.
    """
    run = RunDir(path)
    if run.report.is_file():
        raise UserError(f"the run in {path} has ended; its report is {run.report}")
    recipe = load_config(Recipe, run.config, overrides)
    from rrgtrain.state.identity import may_change, named_code, require_whole  # takes seconds

    require_whole(run, recipe.policy.path)  # before its values are believed
    fixed = [o for o in overrides if may_change(o.partition("=")[0]) == "never"]
    if fixed:
        raise UserError(
            f"{fixed[0]!r} would make another experiment of the run in {path}; start a new one"
        )
    if (code := named_code(asdict(recipe))) and os.environ.get("RANK", "0") == "0":
        listed = hidden(", ".join(f"{name} ({key})" for key, name in code))
        print(one_line(f"rrgtrain: {run.config} has this run import {listed}"), file=sys.stderr)
    return recipe


def how_to_go_on(command: Command, out: Path) -> str:
    """Say which command goes on with what `out` holds."""
    if command.name == "generate":
        return "the reports written are kept: give the same command again to go on"
    if command.name in ("select", "eval"):
        return "give the same command again to go on"
    if command.resumable and RunDir(out).config.is_file():
        return f"go on with: {starter()} {command.name} --resume {shlex.quote(str(out))}"
    return _ANEW


def starter() -> str:
    """Write the command that starts as many processes as this one has."""
    from rrgpolicy.ranks import ranks

    if ranks.processes() == 1:
        return "rrgtrain"
    here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.processes()))
    nodes = ranks.processes() // here
    several = f"--nnodes {nodes} ... " if nodes > 1 else ""
    return f"torchrun {several}--nproc-per-node {here} -m rrgtrain"
