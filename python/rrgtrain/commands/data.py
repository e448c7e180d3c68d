"""`rrgtrain data`, `data check`, `init` and `select`: what is trained on."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from rrgtrain.commands.command import ON_GPUS, Command, add_settings
from rrgtrain.commands.train import on_ranks
from rrgtrain.errors import UserError

if TYPE_CHECKING:
    from rrgtrain.schema import Recipe


def _data_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="directory of the data set")


def draw(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
    """Generate the phantoms of a recipe, without a run."""
    from rrgclinical.common.progress import Bar, progress
    from rrgdata.phantom import write_phantom

    if recipe.data.source != "phantom":
        raise UserError(
            f"data.source={recipe.data.source} is read, not written; name a recipe of phantoms"
        )
    config = recipe.data.phantom
    bar: Bar[int] = progress(config.train + config.val + config.test, "phantom")
    with bar:
        print(write_phantom(config, out, progress=bar.advance))


DATA = on_ranks(draw, "data", "generate synthetic radiographs", _data_words, recipe="demo")


def _check_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("root", type=Path, help="directory of the data set")
    text = "settings of data (see `rrgtrain keys data`); without data.source it is guessed"
    add_settings(parser, text)
    parser.add_argument(
        "--out", type=Path, help="file for all broken studies, a JSON object a line"
    )
    parser.add_argument("--no-images", action="store_true", help="do not decode the images")
    parser.add_argument(
        "--properties",
        action="store_true",
        help="read reports wrapped, in capitals, from HL7, RTF ... too: labels must not change",
    )


def _check(options: argparse.Namespace) -> int:
    from rrgdata.check import check_data_set
    from rrgtrain.config import load_config
    from rrgtrain.schema import Recipe

    other = [o for o in options.overrides if not o.startswith("data.")]
    if other:
        raise UserError(f"{other[0]!r} is no setting of data; `rrgtrain keys data` lists them")
    data = load_config(Recipe, None, options.overrides).data
    if data.source == "mix":
        raise UserError("data.source=mix is several; check each by its own root and data.source")
    named = any(override.startswith("data.source=") for override in options.overrides)
    return check_data_set(
        options.root,
        data,
        source=data.source if named else None,
        out=options.out,
        images=not options.no_images,
        properties=options.properties,
    )


CHECK = Command(
    "data check",
    "report what a data set holds and what of it is broken",
    _check_words,
    _check,
    needed={},
)


def _init_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="DIR", help="directory that they go to")
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="FILE",
        help="table or directory that `rrgtrain data check` reads",
    )
    policy = parser.add_mutually_exclusive_group()
    policy.add_argument("--policy", metavar="MODEL", help="checkpoint directory or hub name")
    policy.add_argument(
        "--small", action="store_true", help="the demo's policy, from scratch (the default)"
    )
    parser.add_argument(
        "--step", action="store_true", help="train a step of each stage; print peak and minutes"
    )
    add_settings(parser, "settings of data")


def _begin(options: argparse.Namespace) -> int:
    from rrgtrain.run.init import Start, begin_experiment, measured

    def choose() -> Start:
        from rrgtrain.plan import fitted

        return Start() if options.policy is None else fitted(options.policy)

    lines = begin_experiment(options.out, options.data, options.overrides, choose)
    print("\n".join([f"cd {shlex.quote(str(options.out))}", *lines]), flush=True)
    if options.step:
        print("\n".join(measured(options.out, options.policy)))
    return 0


INIT = Command(
    "init", "write a recipe, a reward and a README for data of your own", _init_words, _begin
)


def _select_words(parser: argparse.ArgumentParser) -> None:
    # "" and not None: a random draw needs no policy, and the diverse one asks for it itself
    parser.add_argument("--from", dest="start", default="", help="fine-tuned checkpoint")
    parser.add_argument(
        "--out", type=Path, required=True, help="directory of the subset; resumes one that is there"
    )


def choose(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
    """Draw the studies; the directory of an earlier draw is gone on with unasked."""
    from rrgtrain.run.select_studies import select

    select(recipe, out)


SELECT = on_ranks(
    choose,
    "select",
    "choose the training studies that RL learns most from",
    _select_words,
    recipe="deer",
    gpus=ON_GPUS,
    spread=True,
)
