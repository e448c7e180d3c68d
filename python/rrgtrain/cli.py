"""The command line: `rrgtrain demo | sft | rl | eval | data | report | doctor`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rrgtrain.errors import UserError


def parser() -> argparse.ArgumentParser:
    """The verbs and their options."""
    top = argparse.ArgumentParser(
        prog="rrgtrain", description="Reinforcement learning of chest X-ray report generation."
    )
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")

    def verb(name: str, text: str, recipe: str | None) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=text, description=text)
        if recipe is not None:
            made.add_argument("recipe", nargs="?", default=recipe, help="name or YAML path")
            made.add_argument(
                "overrides", nargs="*", metavar="key=value", help="e.g. rl.steps=50 data.root=DIR"
            )
        return made

    demo = verb("demo", "phantoms, SFT, EditGRPO, one table and one report", "demo")
    demo.add_argument("--out", type=Path, default=Path("runs/demo"))
    sft = verb("sft", "supervised fine-tuning to the validation plateau", "sft")
    sft.add_argument("--out", type=Path, required=True)
    rl = verb("rl", "reinforcement learning from a checkpoint", "editgrpo")
    rl.add_argument("--from", dest="start", required=True, help="checkpoint directory or hub name")
    rl.add_argument("--out", type=Path, required=True)
    evaluation = verb("eval", "greedy reports of a checkpoint, scored", "editgrpo")
    evaluation.add_argument("--from", dest="start", required=True, help="checkpoint directory")
    evaluation.add_argument("--out", type=Path, required=True)
    data = verb("data", "write the phantom radiographs of a recipe", "demo")
    data.add_argument("--out", type=Path, required=True)
    report = verb("report", "draw report.html of a finished run again", None)
    report.add_argument("run", type=Path)
    verb("doctor", "versions, devices and who serves each op", None)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 on success, 2 on bad input (one line on standard error)."""
    options = parser().parse_args(arguments)
    if getattr(options, "recipe", None) and "=" in options.recipe:
        # `rrgtrain sft key=value` leaves the recipe out
        options.overrides.insert(0, options.recipe)
        options.recipe = {"demo": "demo", "sft": "sft", "data": "demo"}.get(
            options.verb, "editgrpo"
        )
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        return _run(options)
    except UserError as error:
        print(f"rrgtrain: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("rrgtrain: interrupted", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    if options.verb == "doctor":
        from rrgkern.__main__ import main as doctor

        return doctor([])
    from rrgtrain import commands

    return commands.run(options)


if __name__ == "__main__":
    sys.exit(main())
