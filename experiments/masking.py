"""Measure how often labels change where a report's heaviest tokens are masked (DEER, table 6).

    python -m experiments.masking paper/deer --from CHECKPOINT data.root=DIR

Reports are sampled from the checkpoint, `rl.group` of each of `--studies` training studies (the
paper has 10,000 reports), and masked by chance, by TF-IDF and by the gradient of CheXbert, or, with
a labeller that has none, of a small network that learns from it; `masking_check.py` says how.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.masking_check import GRADIENT, RANDOM, TFIDF, masking_check
from experiments.measures import Ratios
from rrgtrain.cli import Parser, reported
from rrgtrain.errors import UserError
from rrgtrain.run.checked import check
from rrgtrain.run.data import open_data
from rrgtrain.run.session import Session, open_session
from rrgtrain.schema import Recipe

RESAMPLES = 1000


def session_of(
    recipe: Recipe, work: Path, *, sft: bool = False, rl: bool = False, resume: bool = False
) -> Session:
    """Take the three steps at once, without a run directory between them."""
    data = open_data(check(recipe, work, sft=sft, rl=rl), work)
    return open_session(data, work, resume=resume)


def parser() -> Parser:
    """Build the parser of the options."""
    top = Parser(prog="python -m experiments.masking", description="DEER's table 6.")
    top.add_argument("recipe", help="name or YAML file, such as paper/deer")
    top.add_argument("overrides", nargs="*", metavar="key=value", help="settings")
    top.add_argument("--from", dest="start", required=True, help="checkpoint that writes")
    top.add_argument("--studies", type=int, default=1250, help="training studies; default: 1250")
    return top


def interval(ratios: Ratios) -> str:
    """Write a measure with its 95 % percentile bootstrap interval over studies."""
    draws = np.random.default_rng(0).multinomial(
        ratios.units, np.full(ratios.units, 1 / ratios.units), RESAMPLES
    )
    low, high = np.quantile(ratios.value(draws.astype(np.float64)), [0.025, 0.975])
    return f"{float(ratios.value()[0]):.3f} [{low:.3f}, {high:.3f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; exit statuses are those of `rrgtrain.cli.main`."""
    return reported(lambda: _run(arguments), ends_process=arguments is None)


def _run(arguments: Sequence[str] | None) -> int:
    options, rest = parser().parse_known_args(arguments)
    unknown = [word for word in rest if word.startswith("-") or "=" not in word]
    if unknown or options.studies < 1:
        seen = " ".join(unknown) or f"--studies {options.studies}"
        raise UserError(f"{seen}: wanted key=value settings, and --studies of at least 1")
    options.overrides += rest
    # imported here: `--help` should not wait for torch
    from rrgtrain.commands.started import recipe_of

    with tempfile.TemporaryDirectory() as work:
        session = session_of(recipe_of(options), Path(work))
        measures, facts = masking_check(session, options.studies)
    print(f"{facts['reports']:,} reports; labels by {session.recipe.reward.labeller}")
    print(f"{'masking':<10}{'label mod. ratio':>24}{'F1 after masking':>24}")
    for name in (RANDOM, TFIDF, GRADIENT):
        changed, kept = (interval(measures[f"{what}/{name}"]) for what in ("modified", "post_f1"))
        print(f"{name:<10}{changed:>24}{kept:>24}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
