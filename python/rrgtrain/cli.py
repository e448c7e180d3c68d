"""Parse the command line `rrgtrain COMMAND ...`, see `commands/`, and report how it ends."""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from rrgclinical.common.errors import bad_word, cause_line, odd_text, outside_line
from rrgclinical.common.resolve import nearest
from rrgclinical.common.shown import LONGEST_LINE, one_line, shortened
from rrgclinical.common.stop import INTERRUPTED, stopping
from rrgclinical.common.streams import lasting_output
from rrgtrain.commands import COMMANDS
from rrgtrain.commands.command import Command, require_inputs
from rrgtrain.errors import Stopped, UserError

# A path from home that the shell has left as it is, as in --out=~/run; settings expand their own.
FROM_HOME = re.compile(r"^((?:[^.=]*=)?)~(?=/)")
LEAVING = ("init", "export", "report", "show")  # files, whole though nobody reads what is printed


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


def parser(verb: str = "") -> argparse.ArgumentParser:
    """Build the parser of all commands, with the options of one."""
    top = Parser(
        prog="rrgtrain", description="Reinforcement learning of chest X-ray report generation."
    )
    top.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    for command in COMMANDS.values():
        made = verbs.add_parser(
            command.name, help=command.text, description=command.text, epilog=command.gpus
        )
        if command.recipe is not None:
            made.add_argument(
                "recipe",
                nargs="?",
                help=f"name (see `rrgtrain recipes`) or YAML file; default: {command.recipe}",
            )
            made.add_argument(
                "overrides",
                nargs="*",
                metavar="key=value",
                help="settings (see `rrgtrain keys`), e.g. rl.steps=50 data.root=DIR",
            )
        if command.name == verb:
            command.words(made)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0 on success; 1 where `data check` found broken studies; 2 and one line on standard error on bad
    input, or where files, disk or memory refuse; 75 where the run was stopped and can be resumed;
    130 after an interrupt by the keyboard. Without words it prints its help to standard error, and
    the status is 2: a script whose words were lost has done nothing.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    if "COMP_LINE" in os.environ and arguments is None:
        typed = os.environ["COMP_LINE"][: int(os.environ.get("COMP_POINT", "-1"))]
        print("\n".join(completions(typed)))
        return 0

    def command() -> int:
        if not words:
            parser().print_help(sys.stderr)
            return 2
        try:
            options = understood(words)
        except SystemExit:  # --help and --version print and end
            _printed(0)
            raise
        # what holds reports, ids or paths is for its owner; what is exported is for others
        before = os.umask(0o077)
        os.umask(before if options.verb == "export" else before | 0o077)
        try:
            return _run(options)
        except SystemExit as error:  # of a function of one's own: no end of a command
            raise UserError(
                f"code that this command ran called exit: {cause_line(error)}; let it raise an "
                "error instead"
            ) from error
        finally:
            os.umask(before)

    return reported(command, ends_process=arguments is None)


def completions(typed: str) -> list[str]:
    """List what may follow in a line of bash, for `complete -C rrgtrain rrgtrain`."""
    *before, last = typed.split(" ")
    verb = next((name for n in (3, 2) if (name := " ".join(before[1:n])) in COMMANDS), "")
    path = " ".join([*before[1:], ""])
    choices = [name.removeprefix(path).split()[0] for name in COMMANDS if name.startswith(path)]
    words = Parser()
    if verb:
        COMMANDS[verb].words(words)
        choices += words._option_string_actions
    if verb and (COMMANDS[verb].recipe or any(a.dest == "overrides" for a in words._actions)):
        from rrgtrain.recipe_files import recipe_names

        choices += recipe_names()
        if "." in last and "=" not in last:  # seconds, so only where a key has begun
            from rrgtrain.schema import Recipe
            from rrgtrain.schema.keys import settings

            choices += [f"{setting.key}=" for setting in settings(Recipe)]
    matching = sorted({choice for choice in choices if choice.startswith(last)})
    return [choice if choice.endswith("=") else f"{choice} " for choice in matching]


def understood(words: Sequence[str]) -> argparse.Namespace:
    """Parse the options; every key=value is an override wherever it stands."""
    if (two := " ".join(words[:2])) in COMMANDS:
        words = [two, *words[2:]]
    top = parser(words[0])
    words = [FROM_HOME.sub(rf"\1{os.path.expanduser('~')}", word) for word in words]
    if bad := bad_word(words):
        top.error(bad)
    if not words[0].startswith("-") and words[0] not in COMMANDS:
        hint = nearest(words[0], COMMANDS).strip() or f"choose {', '.join(COMMANDS)}"
        raise UserError(f"no command {words[0]!r}: {hint}; see `rrgtrain --help`")
    if any(word.startswith("=") for word in words):
        top.error("a blank stands before '='; settings are written section.key=value, without one")
    options, rest = top.parse_known_args(words)
    command = COMMANDS[options.verb]
    if command.name == "report":
        # it has no settings; a word that looks like one is told as such
        rest += [str(run) for run in options.runs if "=" in run.name and not run.exists()]
    # argparse takes positional words up to the first option only: `sft --out DIR sft.steps=5`
    unknown = [word for word in rest if word.startswith("-") or "=" not in word]
    if unknown or (rest and not hasattr(options, "overrides")):
        words = " ".join(unknown or rest)
        top.error(f"unrecognized arguments: {words} (settings are written section.key=value)")
    if hasattr(options, "overrides"):
        word = (command.recipe and options.recipe) or ""
        if "=" in word and not word.endswith((".yaml", ".yml")):
            # `rrgtrain sft key=value` leaves the recipe out
            options.overrides.insert(0, word)
            options.recipe = None
        options.overrides += rest
        _complete(command, options)
    return options


def _complete(command: Command, options: argparse.Namespace) -> None:
    """Fill in what was left out; UserError for words that a resume has no room for."""
    words = vars(options)
    help_ = f"see `rrgtrain {options.verb} --help`"
    if words.get("resume") is not None:
        names = {"recipe": f"recipe {options.recipe}", "out": "--out", "start": "--from"}
        names["small"] = "--small"
        extra = next((name for key, name in names.items() if words.get(key)), None)
        if extra is not None:
            raise UserError(f"a resumed run has its own: leave out {extra}; {help_}")
        return
    needed = command.complete(options) or command.needed
    missing = [name for key, name in needed.items() if key in words and words[key] is None]
    if missing:
        listed = ", ".join(missing)
        raise UserError(f"the following arguments are required: {listed}; {help_}")
    if command.recipe is not None:
        options.recipe = options.recipe or command.recipe


def _run(options: argparse.Namespace) -> int:
    command = COMMANDS[options.verb]
    alone = not (command.spread or command.anywhere)
    if alone and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(f"rrgtrain {command.name} is one process; start it without torchrun")
    if not command.anywhere:
        _look_here()
    require_inputs(options)
    if sys.stderr.isatty() and os.environ.get("RANK", "0") == "0":
        print(f"rrgtrain {command.name}: loading its libraries ...", file=sys.stderr)
    return _printed(command.run(options), leaves_files=command.spread or command.name in LEAVING)


def _look_here() -> None:
    """Do as `python -m` does: an algorithm of one's own may lie in the working directory."""
    try:
        here = os.getcwd()
    except FileNotFoundError as error:
        raise UserError("the working directory is gone; cd to one that is there") from error
    if odd_text(here):
        raise UserError(f"{here!r} is not UTF-8 text, and the working directory; cd to another")
    if here not in sys.path:
        sys.path.append(here)


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


def reported(command: Callable[[], int], *, ends_process: bool) -> int:
    """Run a command; return its exit status, and print an early end's reason.

    Signals stop it between two steps. `ends_process`: interrupts are ignored from its end on.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Torch's OpenMP spins for 300,000 turns before a thread sleeps, in which runs block each other.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # With AVX512-BF16 it tells of a package for 4-bit weights, which nothing here has.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    if "WORLD_SIZE" in os.environ:
        # of a connection that another rank has closed PyTorch would print a page of its stack
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        with lasting_output(), warnings.catch_warnings(), stopping.installed("rrgtrain"):
            warnings.showwarning = _one_line
            return _with_last_line(command)
    except KeyboardInterrupt:
        # the second one, which came while the first was told
        return INTERRUPTED
    except Stopped as stopped:
        return stopped.status
    finally:
        if ends_process:
            # An interrupt could only print a traceback over the last line.
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _with_last_line(command: Callable[[], int]) -> int:
    try:
        return command()
    except Stopped as stopped:
        _print_last_line(str(stopped), stopped)
        return stopped.status
    except Exception as error:
        stop = stopping.stop_in(error)
        if isinstance(stop, Stopped):  # a library was cut off, or something failed in tidying up
            line = shortened(f"{stop}; behind it {cause_line(error)}", LONGEST_LINE)
            _print_last_line(line, error)
            return stop.status
        line = str(error) if isinstance(error, UserError) else outside_line(error)
        line = shortened(line, LONGEST_LINE)
        if not line:
            raise  # any other is a bug, whose traceback is wanted
        if (ranks := _ranks()) is not None:
            ranks.refuse(one_line(line))
        _print_last_line(line, error)
        return 2
    except KeyboardInterrupt as interrupt:
        _print_last_line("interrupted", interrupt)
        return INTERRUPTED
    finally:
        if (ranks := _ranks()) is not None:
            ranks.close()


def _ranks() -> Any:
    """Return the module of that name, where a command has imported it."""
    return sys.modules.get("rrgpolicy.ranks.ranks")


def _print_last_line(line: str, error: BaseException) -> None:
    """Print the line once: rank 0 tells what all ranks know."""
    ranks = _ranks()
    if os.environ.get("RANK", "0") == "0":
        print(f"rrgtrain: {one_line(line)}", file=sys.stderr)
    elif ranks is not None and ranks.prints_last_line():
        print(f"rrgtrain: rank {ranks.rank()}: {one_line(line)}", file=sys.stderr)


def _one_line(message: Warning | str, *_: Any, **__: Any) -> None:
    if os.environ.get("RANK", "0") == "0":
        line = one_line(" ".join(str(message).split()))
        print(f"rrgtrain: warning: {line}", file=sys.stderr)
