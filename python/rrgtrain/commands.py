"""The verbs of the command line, once their words are understood."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from rrgclinical.common.errors import outside_line
from rrgclinical.common.progress import Bar, progress
from rrgclinical.common.shown import hidden, one_line
from rrgclinical.scorecard import as_text
from rrgdata.check import check_data_set
from rrgdata.phantom import PhantomConfig, write_phantom
from rrgreport.compare import write_comparison
from rrgreport.names import phase_name
from rrgreport.page import require_page
from rrgreport.summary import RunSummary
from rrgreport.table import print_summary
from rrgtrain.config import load_config
from rrgtrain.errors import Stopped, UserError
from rrgtrain.log.trackers import require_trackers
from rrgtrain.plan import (
    Host,
    Setup,
    as_json,
    as_table,
    machine_of,
    plan_stage,
    require_fit,
    stage_of,
)
from rrgtrain.policy.remembered import FILE, KEYS, OF_GENERATE, as_trained
from rrgtrain.ranks import ranks
from rrgtrain.run.alike import require_alike
from rrgtrain.run.export import Export, export_checkpoint
from rrgtrain.run.generate import Wish, generate_reports
from rrgtrain.run.init import begin_experiment
from rrgtrain.run.outcome import add_costs, draw, finish
from rrgtrain.run.replay import replay_batch
from rrgtrain.run.scorecards import Judge, evaluate_files, score_run
from rrgtrain.run.select_studies import select
from rrgtrain.run.stages import Stages
from rrgtrain.schema import Recipe
from rrgtrain.state.experiment import is_fixed
from rrgtrain.state.rundir import RunDir
from rrgtrain.state.unfinished import unmark
from rrgtrain.train.sample_collector import SampleCollector
from rrgtrain.util.stop import stopping

# Commands that several processes share.
SPREAD = ("demo", "sft", "rl", "eval", "select", "generate")
_ANEW = "nothing was saved: start it again with the same command"
# Commands that `--resume` goes on with.
RESUMABLE = ("demo", "sft", "rl")


def run(options: argparse.Namespace) -> int:
    """Load the recipe and run the verb; 0 on success. Bad input is a `UserError`."""
    if ranks.processes() > 1 and options.verb not in SPREAD:
        raise UserError(f"rrgtrain {options.verb} is one process; start it without torchrun")
    if options.verb == "report":
        return report(options.runs, options.out)
    if options.verb == "replay":
        return replay(options.batch)
    if options.verb == "data check":
        return data_check(options)
    if options.verb == "export":
        return export(options)
    if options.verb == "plan":
        return plan(options)
    if options.verb == "init":
        return init(options)
    if options.verb == "eval" and options.predictions:
        return evaluation_of_files(options)
    out, resume = options.out, getattr(options, "resume", None)
    if resume is not None:
        out, recipe = resume, resumed_recipe(resume, options.overrides)
    else:
        recipe = recipe_of(options, OF_GENERATE if options.verb == "generate" else KEYS)
    if options.verb != "generate":
        require_trackers(recipe.log)
    cuda = recipe.policy.device == "cuda" or (
        recipe.policy.device == "auto" and torch.cuda.is_available()
    )
    mode = recipe.scale.mode
    if options.verb not in RESUMABLE:
        # nothing is trained: whoever torchrun has started takes part, each with a whole policy
        mode = "fsdp2" if ranks.processes() > 1 else "none"
    with ranks.opened(mode, recipe.scale.timeout, cuda=cuda):
        ranks.go_on_by(lambda: _how_to_go_on(options.verb, out))
        with ranks.propagate_errors():
            require_alike(recipe)
        with ranks.propagate_errors():
            again = resume is not None or ranks.from_main(lambda: _is_begun(options, recipe))
            _run(options, recipe, out, resume=again)
    return 0


def _is_begun(options: argparse.Namespace, recipe: Recipe) -> bool:
    """Tell whether --out holds the beginning of this very training, which then goes on."""
    if options.verb not in RESUMABLE:
        return False
    found = RunDir(options.out)
    if found.report.is_file() or not found.config.is_file():
        return False
    try:
        return load_config(Recipe, found.config, [], of_run=True) == recipe
    except UserError:  # a file that is no run's, or of another version
        return False


def recipe_of(options: argparse.Namespace, remembered: Sequence[str] = KEYS) -> Recipe:
    """Load the recipe with its overrides; `--from` gives `remembered` keys their defaults."""
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


def _run(options: argparse.Namespace, recipe: Recipe, out: Path, *, resume: bool) -> None:
    verb = options.verb
    try:
        if verb in RESUMABLE:
            {"demo": demo, "sft": sft, "rl": rl}[verb](recipe, out, resume=resume)
        elif verb == "generate":
            with ranks.propagate_errors():
                generate_reports(recipe, Wish(options.folder, out, options.study, options.context))
        else:
            {"eval": evaluation, "data": data, "select": select}[verb](recipe, out)
    except Stopped as stopped:
        stopped.args = (f"{stopped}; {_how_to_go_on(verb, out)}",)
        raise
    except Exception as error:
        line, advice = outside_line(error), _how_to_go_on(verb, out)
        if not line:
            raise
        kind = UserError if advice == _ANEW else Stopped
        raise kind(f"{line}; {advice}") from error


def resumed_recipe(path: Path, overrides: list[str]) -> Recipe:
    """Load the recipe of the run in `path`, with overrides that a resume may change.

    Raises UserError where there is no run, where it has ended, and for a setting that its
    checkpoints depend on.
    """
    found = RunDir(path)
    if not found.config.is_file():
        raise UserError(f"no run in {path} to resume; drop --resume to start one there")
    if found.report.is_file():
        raise UserError(f"the run in {path} has ended; its report is {found.report}")
    recipe = load_config(Recipe, found.config, overrides, of_run=True)
    fixed = [o for o in overrides if is_fixed(o.partition("=")[0])]
    if fixed:
        raise UserError(
            f"{fixed[0]!r} would make another experiment of the run in {path}; start a new one"
        )
    return recipe


def _how_to_go_on(verb: str, out: Path) -> str:
    if verb == "generate":
        return "the reports written are kept: give the same command again to go on"
    if verb in ("select", "eval"):
        return "give the same command again to go on"
    if verb in RESUMABLE and RunDir(out).config.is_file():
        return f"go on with: {_started()} {verb} --resume {shlex.quote(str(out))}"
    return _ANEW


def _started() -> str:
    """Write the command that starts as many processes as this one has."""
    if ranks.processes() == 1:
        return "rrgtrain"
    here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.processes()))
    nodes = ranks.processes() // here
    several = f"--nnodes {nodes} ... " if nodes > 1 else ""
    return f"torchrun {several}--nproc-per-node {here} -m rrgtrain"


def demo(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
    """Run SFT, then reinforcement learning from it, and evaluate both on held-out studies."""
    began = time.perf_counter()
    name = phase_name(recipe.rl.algorithm)
    kept = SampleCollector()
    with Stages.open(recipe, out, sft=True, rl=True, verb="demo", resume=resume) as stages:
        tuned = stages.sft()
        before = stages.evaluate("SFT")
        trained = stages.rl(kept)
        after = stages.evaluate(name)
        finish(
            stages,
            f"SFT, then {name}",
            {"SFT": (before, tuned), name: (after, trained)},
            kept,
            began - stages.checkpointer.earlier,
        )


def sft(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
    """Run supervised fine-tuning and evaluate it on held-out studies."""
    began = time.perf_counter()
    with Stages.open(recipe, out, sft=True, verb="sft", resume=resume) as stages:
        tuned = stages.sft()
        systems = {"SFT": (stages.evaluate("SFT"), tuned)}
        finish(stages, "SFT", systems, began=began - stages.checkpointer.earlier)
        _say(f"checkpoint: {tuned.best}")


def rl(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
    """Run reinforcement learning from `policy.path`, and evaluate it beside its start."""
    began = time.perf_counter()
    name = phase_name(recipe.rl.algorithm)
    kept = SampleCollector()
    with Stages.open(recipe, out, rl=True, verb="rl", resume=resume) as stages:
        before = stages.evaluate("start")
        trained = stages.rl(kept)
        after = stages.evaluate(name)
        systems = {"start": (before, None), name: (after, trained)}
        finish(stages, name, systems, kept, began - stages.checkpointer.earlier)
        _say(f"checkpoint: {trained.best}")


def _say(line: str) -> None:
    if ranks.is_main():
        print(line)


def evaluation(recipe: Recipe, out: Path) -> None:
    """Generate reports with a checkpoint and score them."""
    began = time.perf_counter()
    with Stages.open(recipe, out) as stages:
        name = Path(os.path.abspath(recipe.policy.path)).name
        if ranks.is_main():
            judge = Judge(recipe, stages.session.rewards)
        written = stages.evaluate(name)
        title = f"evaluation of {name}"
        summary = finish(stages, title, {name: (written, None)}, began=began)
        stages.session.rewards.spending.leave_to_main()

        def scored() -> None:
            card = score_run(judge, {name: written}, out)
            print(f"scorecard: {out / 'scorecard.html'}\n\n{as_text(card)}", end="")
            if summary is not None:
                add_costs(stages, summary)
            unmark(out)

        # half an hour is soon over where a language model reads every report
        wait_for_main(scored)


def wait_for_main(work: Callable[[], None]) -> None:
    """Let rank 0 do what may take longer than `scale.timeout`; the others wait.

    Raises rank 0's error on all.
    """
    group, met = ranks.side_group(), None
    try:
        if ranks.is_main():
            work()
    except Exception as error:
        met = error
    with stopping.deferred():
        ranks.gather_aside(group, None, met)


def evaluation_of_files(options: argparse.Namespace) -> int:
    """Score files of predictions; no policy is opened."""
    if ranks.processes() > 1:
        raise UserError("files are scored by one process; start it without torchrun")
    try:
        recipe = recipe_of(options)
        if recipe.eval.limit is not None:
            raise UserError(
                f"eval.limit={recipe.eval.limit} is for checkpoints, files are scored whole; set "
                "it to null, and shorten the files"
            )
        evaluate_files(recipe, options.predictions, options.references, options.out)
    except OSError as error:
        raise UserError(f"{error.filename or options.out}: {error.strerror}") from error
    return 0


def data(recipe: Recipe, out: Path) -> None:
    """Generate the phantoms of a recipe, without a run."""
    if recipe.data.source != "phantom":
        raise UserError(
            f"data.source={recipe.data.source} is read, not written; name a recipe of phantoms"
        )
    config = PhantomConfig(**vars(recipe.data.phantom))
    bar: Bar[int] = progress(config.train + config.val + config.test, "phantom")
    with bar:
        print(write_phantom(config, out, progress=bar.advance))


def data_check(options: argparse.Namespace) -> int:
    """Report what a data set holds; 1 where studies are broken."""
    other = [o for o in options.overrides if not o.startswith("data.")]
    if other:
        raise UserError(f"{other[0]!r} is no setting of data; `rrgtrain keys data` lists them")
    data = load_config(Recipe, None, options.overrides).data
    named = any(override.startswith("data.source=") for override in options.overrides)
    return check_data_set(
        options.root,
        data,
        source=data.source if named else None,
        out=options.out,
        images=not options.no_images,
    )


def init(options: argparse.Namespace) -> int:
    """Begin an experiment on data of one's own in a directory, and print its commands."""
    lines = begin_experiment(options.folder, options.data, options.overrides)
    print("\n".join([f"cd {shlex.quote(str(options.folder))}", *lines]))
    return 0


def plan(options: argparse.Namespace) -> int:
    """Print what a recipe needs on a machine; UserError where it cannot fit."""
    machine = machine_of(options.gpu, options.gpu_memory)
    recipe = load_config(Recipe, options.recipe, options.overrides)
    if options.gpus > 1 and "scale.mode=none" in options.overrides:
        raise UserError(f"scale.mode=none is one process, --gpus {options.gpus} several; drop one")
    host = Host.of_gib(options.host_memory, options.disk)
    setup = Setup.of(recipe, machine, options.gpus)
    planned = plan_stage(setup, options.stage or stage_of(options.recipe, recipe))
    text = as_json(setup, [planned]) if options.json else as_table(setup, [planned])
    print(hidden(text), flush=True)
    require_fit(setup, [planned], host)
    return 0


def report(paths: Sequence[Path], out: Path | None = None) -> int:
    """Write the page of a finished run, or one of several, and print its table."""
    if len(paths) > 1:
        out = out or Path("compare.html")
        summary = write_comparison(paths, out)
    else:
        run = RunDir.open(paths[0])
        if out is not None:
            require_page(out)
        out = out or run.report
        summary = RunSummary.load(run.summary)
        draw(run, summary, out)
    print_summary(summary)
    print(f"\nreport: {out}")
    return 0


def export(options: argparse.Namespace) -> int:
    """Write a checkpoint as others load it."""
    wish = Export(options.checkpoint, options.out, options.dtype, options.merge)
    print(f"export: {export_checkpoint(wish)}")
    return 0


def replay(path: Path) -> int:
    """Recompute the kept batch of a failure and print where it is not finite."""
    for line in replay_batch(path):
        print(one_line(line))
    return 0
