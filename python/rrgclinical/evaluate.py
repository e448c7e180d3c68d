"""`python -m rrgclinical.evaluate`: a labeller against the human codes of IU X-Ray."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from rrgclinical.backends import build_labeller
from rrgclinical.common.errors import UserError
from rrgclinical.human import (
    MENTIONED,
    STATED,
    Agreement,
    agreement,
    load_coded_reports,
    uncertain_coded,
)

_WIDTH = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; 0 on success, 2 on bad input (one line on standard error)."""
    options = _parser().parse_args(arguments)
    try:
        coded = load_coded_reports(options.data, options.split)
        labeller = build_labeller(options.labeller)
    except UserError as error:
        print(f"rrgclinical: {error}", file=sys.stderr)
        return 2
    started = time.perf_counter()
    labels = labeller.label(coded.reports)
    seconds = time.perf_counter() - started
    # a file or a pipe has no width of its own, and the default would break every cell
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    for title, positive in (("stated or uncertain", MENTIONED), ("stated (strict)", STATED)):
        result = agreement(labels, coded.truth, positive=positive, resamples=options.resamples)
        console.print(_table(result, f"{options.labeller}, {options.split}: positive = {title}"))
    console.print(f"coded of the uncertain ones: {_uncertain(labels, coded.truth)}")
    console.print(
        f"{len(coded.reports)} reports in {seconds:.2f} s "
        f"({len(coded.reports) / seconds:,.0f} a second, first time); "
        f"95 % bootstrap intervals, {options.resamples} resamples"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rrgclinical.evaluate",
        description="Agreement of a labeller with the human MeSH codes of IU X-Ray.",
    )
    parser.add_argument(
        "--data",
        required=True,
        help="directory with annotation.json, sections.jsonl and mesh_labels_14.csv",
    )
    parser.add_argument(
        "--split", default="val", help="train, val, test or, say, train+val (default: val)"
    )
    parser.add_argument("--labeller", default="rules", help="a registered labeller")
    parser.add_argument("--resamples", type=int, default=2000, help="bootstrap resamples")
    return parser


def _table(result: Agreement, title: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("observation")
    table.add_column("n", justify="right")
    for name in ("precision", "recall", "F1"):
        table.add_column(name, justify="right")
    names = list(result.scores["f1"])
    counts = [*map(int, result.positives), int(result.positives.sum()), int(result.positives.sum())]
    for name, count in zip(names, counts, strict=True):
        if name == "micro":
            table.add_section()
        cells = [_cell(*result.scores[metric][name]) for metric in ("precision", "recall", "f1")]
        table.add_row(name, str(count), *cells)
    return table


def _uncertain(labels: np.ndarray, truth: np.ndarray) -> str:
    """Say of each observation how many that are called uncertain have the human code."""
    counts = uncertain_coded(labels, truth)
    return ", ".join(f"{name} {coded} of {all_}" for name, (coded, all_) in counts.items() if all_)


def _cell(value: float, low: float, high: float) -> str:
    return f"{value:.3f} [{low:.3f}, {high:.3f}]".replace("[", r"\[")


if __name__ == "__main__":
    sys.exit(main())
