"""Parse the command line.

`rrgtrain demo | sft | rl | eval | generate | export | report | keys` ..."""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from rrgtrain.ending import reported
from rrgtrain.errors import UserError

DEFAULT_RECIPES = {
    "demo": "demo",
    "sft": "sft",
    "rl": "editgrpo",
    "eval": "editgrpo",
    "data": "demo",
    "select": "deer",
    "plan": "editgrpo",
}
ON_GPUS = "On N GPUs: torchrun --nproc-per-node N -m %(prog)s ..."
TRAINING_ON_GPUS = f"{ON_GPUS} scale.mode=fsdp2"
# Of `demo --small`.
SMALL_DEMO = "demo_small"
# Of a command whose recipe is an option: its words are others.
GENERATE_RECIPE = "editgrpo"
# Two words, and a command of its own: it has a root and no recipe.
CHECK = "data check"
# A word that is FILE or NAME=FILE, as --predictions takes them, and no setting.
REPORTS = re.compile(r"([^.=]+=)?[^=]+\.(csv|jsonl?)")
# A path from home that the shell has left as it is, as in --out=~/run; settings expand their own.
FROM_HOME = re.compile(r"^((?:[^.=]*=)?)~(?=/)")


class Parser(argparse.ArgumentParser):
    """Parse words; a wrong one is a `UserError`."""

    def error(self, message: str) -> NoReturn:
        # argparse would print its usage above it; a wrong word is told like any other bad input
        raise UserError(f"{message}; see `{self.prog} --help`")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        # imported when asked for: it takes torch along, and two seconds
        import rrgkern

        print(f"rrgtrain {rrgkern.__version__}")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """Build the parser of all commands and their options."""
    top = Parser(
        prog="rrgtrain", description="Reinforcement learning of chest X-ray report generation."
    )
    top.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")

    def verb(name: str, text: str, gpus: str | None = None) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=text, description=text, epilog=gpus)
        if name in DEFAULT_RECIPES:
            default = DEFAULT_RECIPES[name]
            made.add_argument(
                "recipe",
                nargs="?",
                help=f"name (see `rrgtrain recipes`) or YAML file; default: {default}",
            )
            made.add_argument(
                "overrides",
                nargs="*",
                metavar="key=value",
                help="settings (see `rrgtrain keys`), e.g. rl.steps=50 data.root=DIR",
            )
        return made

    demo = verb(
        "demo", "run SFT and RL on synthetic radiographs and compare them", TRAINING_ON_GPUS
    )
    demo.add_argument("--out", type=Path, help="directory of the run; default: runs/demo")
    demo.add_argument(
        "--small",
        action="store_true",
        help=f"the recipe {SMALL_DEMO}: a minute on two cores, which shows that everything runs",
    )
    sft = verb("sft", "fine-tune on reports up to the validation plateau", TRAINING_ON_GPUS)
    sft.add_argument("--out", type=Path, help="directory of the run")
    rl = verb("rl", "train a checkpoint by reinforcement learning", TRAINING_ON_GPUS)
    rl.add_argument("--from", dest="start", help="checkpoint directory or hub name")
    rl.add_argument("--out", type=Path, help="directory of the run")
    for resumable in (demo, sft, rl):
        resumable.add_argument(
            "--resume",
            type=Path,
            metavar="RUN",
            help="resume the run in this directory from its newest checkpoint",
        )
    evaluation = verb(
        "eval", "score reports of a checkpoint on the test split, or those of files", ON_GPUS
    )
    evaluation.add_argument("--from", dest="start", help="checkpoint directory or hub name")
    evaluation.add_argument(
        "--predictions",
        action="append",
        metavar="[NAME=]FILE",
        help="reports to score instead: CSV, JSONL or JSON; say it once a system",
    )
    evaluation.add_argument(
        "--references", type=Path, metavar="FILE", help="their references, or labels, by id"
    )
    evaluation.add_argument("--out", type=Path, help="directory of the evaluation")
    planning = verb("plan", "print what a run will need, before it: memory, disk, tokens, seconds")
    planning.add_argument("--gpus", type=int, default=1, metavar="N", help="GPUs, one process each")
    planning.add_argument("--gpu", default="h100", help="h100, h200, a100-80, a100-40, l40s or cpu")
    for name, text in (
        ("gpu-memory", "memory of one GPU, where it is another"),
        ("host-memory", "memory of a node, to be compared with"),
        ("disk", "free room of the run's disk, to be compared with"),
    ):
        planning.add_argument(f"--{name}", type=float, metavar="GIB", help=text)
    planning.add_argument("--stage", choices=("sft", "rl"), help="default: what the recipe is for")
    selection = verb("select", "choose the training studies that RL learns most from", ON_GPUS)
    # "" and not None: a random draw needs no policy, and the diverse one asks for it itself
    selection.add_argument("--from", dest="start", default="", help="fine-tuned checkpoint")
    selection.add_argument(
        "--out", type=Path, required=True, help="directory of the subset; resumes one that is there"
    )
    generation = verb("generate", "write reports of the images below a directory", ON_GPUS)
    # the same names as in the other commands: checkpoint and settings are read alike
    generation.add_argument("start", metavar="CHECKPOINT", help="checkpoint directory or hub name")
    generation.add_argument("folder", type=Path, metavar="FOLDER", help="directory of the images")
    generation.add_argument(
        "overrides", nargs="*", metavar="key=value", help="settings (see `rrgtrain keys`)"
    )
    generation.add_argument(
        "--out",
        type=Path,
        default=Path("reports.jsonl"),
        metavar="FILE",
        help="JSONL of the reports; default: reports.jsonl. A second call adds what it lacks",
    )
    generation.add_argument(
        "--study",
        choices=("file", "folder"),
        default="file",
        help="one study an image (default), or the images of one folder a study",
    )
    generation.add_argument(
        "--context",
        type=Path,
        metavar="CSV",
        help="columns id or path, and any of indication, technique, comparison",
    )
    generation.add_argument(
        "--recipe", default=GENERATE_RECIPE, help=f"name or YAML file; default: {GENERATE_RECIPE}"
    )
    exporting = verb("export", "write a checkpoint for others: bf16, the hub's names, a model card")
    exporting.add_argument("checkpoint", metavar="CHECKPOINT", help="checkpoint directory")
    exporting.add_argument("--out", type=Path, required=True, metavar="DIR", help="new directory")
    exporting.add_argument(
        "--dtype", choices=("bf16", "fp16", "fp32"), default="bf16", help="default: bf16"
    )
    exporting.add_argument("--merge", action="store_true", help="add the adapter to its base")
    data = verb("data", "generate synthetic radiographs")
    data.add_argument("--out", type=Path, required=True, help="directory of the data set")
    check = verb(CHECK, "report what a data set holds and what of it is broken")
    check.add_argument("root", type=Path, help="directory of the data set")
    check.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="key=value",
        help="settings of data (see `rrgtrain keys data`); without data.source it is guessed",
    )
    check.add_argument("--out", type=Path, help="file for all broken studies, a JSON object a line")
    check.add_argument("--no-images", action="store_true", help="do not decode the images")
    init = verb("init", "write a recipe, a reward and a README for data of your own")
    init.add_argument("folder", type=Path, metavar="DIR", help="directory that they go to")
    init.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="FILE",
        help="table or directory that `rrgtrain data check` reads",
    )
    init.add_argument(
        "overrides", nargs="*", default=[], metavar="key=value", help="settings of data"
    )
    report = verb("report", "regenerate report.html of a run, or compare several on one page")
    report.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="directory of a run")
    report.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the page; default: report.html of the run, or compare.html of several",
    )
    replay = verb("replay", "recompute a saved NaN batch and say where it is not finite")
    replay.add_argument("batch", type=Path, help="RUN/failures/<stage>-<step>")
    recipes = verb("recipes", "list the recipes with their papers")
    keys = verb("keys", "list the settings with types, defaults and allowed values")
    keys.add_argument("prefix", nargs="?", default="", help="beginning of a key, e.g. rl or rl.eps")
    for listing in (recipes, keys, planning):
        listing.add_argument("--json", action="store_true", help="print JSON")
    verb("doctor", "check this installation")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0 on success; 1 where `data check` found broken studies; 2 and one line on standard error on bad
    input, or where files, disk or memory refuse; 75 where the run was stopped and can be resumed;
    130 after an interrupt by the keyboard. Without words it prints its help to standard error, and
    the status is 2: a script whose words were lost has done nothing.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)

    def command() -> int:
        if not words:
            parser().print_help(sys.stderr)
            return 2
        return _run(_understood(words))

    return reported(command, ends_process=arguments is None)


def _understood(words: Sequence[str]) -> argparse.Namespace:
    """Parse the options; every key=value is an override wherever it stands."""
    top = parser()
    words = [FROM_HOME.sub(rf"\1{os.path.expanduser('~')}", word) for word in words]
    if " ".join(words[:2]) == CHECK:
        words = [CHECK, *words[2:]]
    options, rest = top.parse_known_args(words)
    if options.verb == "report":
        # it has no settings; a word that looks like one is told as such
        rest += [str(run) for run in options.runs if "=" in run.name and not run.exists()]
    # argparse takes positional words up to the first option only: `sft --out DIR sft.steps=5`
    unknown = [word for word in rest if word.startswith("-") or "=" not in word]
    if unknown or (rest and not hasattr(options, "overrides")):
        words = " ".join(unknown or rest)
        top.error(f"unrecognized arguments: {words} (settings are written section.key=value)")
    if options.verb in (CHECK, "init"):
        options.overrides += rest
    elif hasattr(options, "overrides"):
        recipe = options.recipe
        if recipe and "=" in recipe and not recipe.endswith((".yaml", ".yml")):
            # `rrgtrain sft key=value` leaves the recipe out
            options.overrides.insert(0, recipe)
            options.recipe = None
        options.overrides += rest
        _complete(options)
    return options


def _complete(options: argparse.Namespace) -> None:
    """Fill in what was left out; UserError for words that a resume has no room for."""
    given = vars(options)
    help_ = f"see `rrgtrain {options.verb} --help`"
    if given.get("resume") is not None:
        words = {"recipe": f"recipe {options.recipe}", "out": "--out", "start": "--from"}
        words["small"] = "--small"
        word = next((w for k, w in words.items() if given.get(k)), None)
        if word is not None:
            raise UserError(f"a resumed run has its own: leave out {word}; {help_}")
        return
    if options.verb == "demo":
        if options.small and options.recipe is not None:
            raise UserError(
                f"--small is the recipe {SMALL_DEMO}: leave out {options.recipe}; {help_}"
            )
        options.recipe = SMALL_DEMO if options.small else options.recipe
        options.out = options.out or Path("runs", "demo-small" if options.small else "demo")
    wanted = {"start": "--from", "out": "--out"}
    if given.get("predictions") or given.get("references"):
        if options.start is not None:
            raise UserError(f"a checkpoint or files are scored: leave out --from; {help_}")
        more = next(filter(REPORTS.fullmatch, [options.recipe or "", *options.overrides]), None)
        if more is not None:
            raise UserError(f"{more} is no setting; say --predictions before each file; {help_}")
        wanted = {"predictions": "--predictions", "references": "--references"}
    missing = [w for k, w in wanted.items() if k in given and given[k] is None]
    if missing:
        listed = ", ".join(missing)
        raise UserError(f"the following arguments are required: {listed}; {help_}")
    options.recipe = options.recipe or DEFAULT_RECIPES[options.verb]


def _run(options: argparse.Namespace) -> int:
    if options.verb == "doctor":
        from rrgkern.__main__ import main as doctor

        doctor([])
        return _printed(0)
    if options.verb in ("recipes", "keys"):
        from rrgtrain.listing import list_keys, list_recipes

        if options.verb == "keys":
            listed = list_keys(options.prefix, as_json=options.json)
        else:
            listed = list_recipes(as_json=options.json)
        print(listed)
        return _printed(0)
    from rrgtrain import commands

    # As `python -m` does: an algorithm of one's own may lie in the working directory.
    try:
        here = os.getcwd()
    except FileNotFoundError as error:
        raise UserError("the working directory is gone; cd to one that is there") from error
    if here not in sys.path:
        sys.path.append(here)
    return _printed(commands.run(options), leaves_files=options.verb in commands.SPREAD)


def _printed(status: int, *, leaves_files: bool = False) -> int:
    """Return the status, once what was printed has arrived.

    UserError where it cannot be written and was all that the command is for. A reader that is gone
    (`| head`) has read enough.
    """
    sys.stdout.flush()
    failure = getattr(sys.stdout, "failure", None)
    if failure is None or isinstance(failure, BrokenPipeError):
        return status
    line = f"standard output cannot be written: {failure.strerror}"
    if not leaves_files:
        raise UserError(f"{line}; send it elsewhere")
    warnings.warn(f"{line}; the files of the run are whole", stacklevel=2)
    return status


if __name__ == "__main__":
    sys.exit(main())
