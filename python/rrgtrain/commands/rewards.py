"""`rrgtrain stress` and `serve`: the rewards of a recipe without a training."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import suppress
from pathlib import Path

from rrgtrain.commands.command import Command


def _stress_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reports",
        type=Path,
        metavar="FILE",
        help="reports to plant errors in: CSV, JSONL or JSON; default: those of the recipe's data",
    )
    parser.add_argument(
        "--studies", type=int, default=150, metavar="N", help="how many of them, at most"
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="FILE",
        help="compare with preferences instead: columns reference, first, second, preferred",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 where a harmless change costs more than a critical error",
    )


def _stress(options: argparse.Namespace) -> int:
    from rrgtrain.config import load_config
    from rrgtrain.schema import Recipe

    recipe = load_config(Recipe, options.recipe, options.overrides)
    from rrgtrain.run.stress import stress

    words = {name: getattr(options, name) for name in ("studies", "reports", "against", "strict")}
    return stress(recipe, **words)


STRESS = Command(
    "stress",
    "show how a reward's terms order planted errors, and what games them",
    _stress_words,
    _stress,
    recipe="editgrpo",
)


def _serve_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8008, help="port; 0 takes a free one")
    parser.add_argument(
        "--batch", type=int, default=256, metavar="N", help="reports at which a batch is scored"
    )
    parser.add_argument(
        "--wait", type=float, default=0.02, metavar="S", help="seconds it waits for more at most"
    )
    parser.add_argument(
        "--queue", type=int, default=8192, metavar="N", help="reports that may wait at most"
    )


def _serve(options: argparse.Namespace) -> int:
    """Serve a recipe's reward until a signal comes; print where, and at the end how much.

    The training studies are read where a term counts something in them. Raises UserError for an
    address that cannot be had, and for a recipe that cannot score texts.
    """
    # the first tells what is missing before torch is loaded
    from rrgclinical.serving.app import address_of, listen, make_app, run
    from rrgclinical.serving.batcher import Batcher, BatchSettings
    from rrgtrain.config import load_config
    from rrgtrain.errors import Stopped
    from rrgtrain.schema import Recipe

    settings = BatchSettings(options.batch, options.wait, options.queue)
    recipe = load_config(Recipe, options.recipe, options.overrides)
    from rrgtrain.rewards import RewardService, refuse_left_out
    from rrgtrain.run.data import read_studies, split_of

    refuse_left_out(recipe.reward, "a trainer behind HTTP")
    with listen(options.host, options.port) as listening:
        rewards = RewardService(recipe.reward)
        if rewards.counts_corpus:
            with tempfile.TemporaryDirectory() as work:
                rewards.fit(split_of(read_studies(recipe.data, Path(work)), "train"))
        # models are loaded, and what a recipe lacks is told, before anyone asks
        rewards(["No acute disease."], ["No acute disease."])
        batcher = Batcher(rewards, settings)
        where = address_of(listening)
        print(f"serving {', '.join(recipe.reward.terms)} on {where}", flush=True)
        # the signal that ends it is raised when all that was accepted is answered
        with suppress(Stopped):
            run(make_app(batcher, rewards.statistics), listening)
    counts = batcher.counts
    print(f"served {counts.requests} requests, {counts.reports} reports", flush=True)
    return 0


SERVE = Command(
    "serve",
    "serve a recipe's rewards over HTTP, for verl, ms-swift and EasyR1",
    _serve_words,
    _serve,
    recipe="editgrpo",
)
