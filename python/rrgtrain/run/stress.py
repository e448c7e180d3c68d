"""Stress the terms of a reward: planted errors, orders, gaming, and a reader's own pairs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rrgclinical.common.files import atomic_write
from rrgclinical.common.table import aligned
from rrgclinical.scorecard import read_references
from rrgclinical.severity import CAVEAT
from rrgclinical.stress import (
    FIRST_OF_MEANING,
    ORDERS,
    agreement,
    dearer_than_error,
    gaming_rows,
    is_normal,
    means,
    plant,
    read_pairs,
    tally,
)
from rrgdata.phantom import sample_case, write_report
from rrgdata.settings import DataSettings
from rrgreport.dots import dot_rows
from rrgtrain.errors import RewardError, UserError
from rrgtrain.rewards import RewardService
from rrgtrain.run.data import read_studies, split_of
from rrgtrain.schema import Recipe

Values = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class StressOptions:
    """studies: reports that errors are planted in. reports, against: files; svg: file to write."""

    studies: int = 150
    reports: Path | None = None
    against: Path | None = None
    svg: Path | None = None
    strict: bool = False


def stress(recipe: Recipe, options: StressOptions) -> int:
    """Print the tables of each term of the recipe's reward; return the exit status.

    1 with `strict` where a harmless change costs more than a critical error. UserError for a term
    that fails on an empty report, files that cannot be read, and reports that nothing can be
    planted in.
    """
    rewards = RewardService(recipe.reward)
    terms = list(recipe.reward.terms)
    if options.against is not None:
        _print_agreement(rewards, terms, options.against)
        return 0
    if options.studies < 1:
        raise UserError(f"--studies {options.studies}; wanted at least 1")
    texts = _texts(recipe, options.reports)
    _require_empty(rewards, terms, texts[0])
    planted = plant(texts, options.studies, recipe.seed)
    if not planted:
        raise UserError(
            f"none of {len(texts)} reports has 15 to 120 words and room for a critical and a minor "
            "finding; give other reports by --reports FILE"
        )
    flat = [(i, name, *pair) for i, one in enumerate(planted) for name, pair in one.pairs.items()]
    scored = _scored(rewards, terms, [row[3] for row in flat], [row[2] for row in flat])
    values: dict[str, list[dict[str, float]]] = {term: [{} for _ in planted] for term in terms}
    for term, column in scored.items():
        for (i, name, _, _), value in zip(flat, column, strict=True):
            values[term][i][name] = float(value)
    print(f"{len(planted)} reports, {len(flat)} pairs; 1 is the value of the reference itself\n")
    _print_means(values)
    _print_orders(values)
    _print_gaming(rewards, terms, texts[: options.studies])
    if options.svg is not None:
        drawn = {t: {n: mean for n, (mean, _) in means(of).items()} for t, of in values.items()}
        atomic_write(options.svg, dot_rows("mean value of each perturbation", drawn))
        print(f"drawn: {options.svg}")
    if "severity" in terms:
        print(f"{CAVEAT}\n")
    return _verdict(values, strict=options.strict)


def _texts(recipe: Recipe, reports: Path | None) -> list[str]:
    """Reports to plant errors in: of a file, of phantoms, or of the recipe's data."""
    if reports is not None:
        columns = read_references(reports, split=recipe.eval.split).texts
        texts = [text for column in columns for text in column]
    elif recipe.data.source == "phantom":
        texts = _of_phantoms(recipe.data)
    else:
        with tempfile.TemporaryDirectory() as work:
            studies = split_of(read_studies(recipe.data, Path(work)), recipe.eval.split)
        texts = [study.report or "" for study in studies]
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise UserError("there is no report to plant errors in; give some by --reports FILE")
    return texts


def _of_phantoms(data: DataSettings) -> list[str]:
    """Reports of phantoms, which need no image."""
    config = data.phantom
    cases = [sample_case(config, (config.seed, 0, number)) for number in range(config.train)]
    return [write_report(case, case.findings, case.negated, config) for case in cases]


def _require_empty(rewards: RewardService, terms: Sequence[str], reference: str) -> None:
    for _, value in rewards.measure(terms, [""], [reference]):
        if isinstance(value, RewardError):
            raise UserError(f"an empty report stops a run: {value}")


def _scored(
    rewards: RewardService, terms: Sequence[str], reports: list[str], references: list[str]
) -> dict[str, np.ndarray]:
    scored = {}
    for term, value in rewards.measure(terms, reports, references):
        if isinstance(value, RewardError):
            raise value
        scored[term] = value
    return scored


def _print_means(values: Mapping[str, list[dict[str, float]]]) -> None:
    each = {term: means(of) for term, of in values.items()}
    rows = next(iter(each.values()))
    _table(
        ["perturbation", "n", *values],
        ([name, str(n), *(f"{means[name][0]:.3f}" for means in each.values())]
         for name, (_, n) in rows.items()),
    )  # fmt: skip


def _print_orders(values: Mapping[str, list[dict[str, float]]]) -> None:
    tallies = {term: [tally(order, of) for order in ORDERS] for term, of in values.items()}
    first = next(iter(tallies.values()))
    rows = [
        [f"{k + 1} {order.text}", str(first[k].n),
         *(_shares(of[k].right, of[k].tied, of[k].wrong) for of in tallies.values())]
        for k, order in enumerate(ORDERS)
    ]  # fmt: skip
    averages = []
    for of in tallies.values():
        meant = [one for one in of[FIRST_OF_MEANING:] if one.n]
        averages.append(
            _shares(*(float(np.mean([getattr(one, kind) for one in meant]))
                      for kind in ("right", "tied", "wrong")))
        )  # fmt: skip
    rows.append([f"mean of {FIRST_OF_MEANING + 1} to {len(ORDERS)}", "", *averages])
    _table(["order (right/tied/wrong %)", "n", *values], rows)


def _print_gaming(rewards: RewardService, terms: Sequence[str], texts: Sequence[str]) -> None:
    normal = np.array([is_normal(text) for text in texts])
    groups = [(name, members) for name, members in (("normal", normal), ("abnormal", ~normal))
              if members.any()]  # fmt: skip
    rows = []
    for name, reports in gaming_rows(texts).items():
        scored = _scored(rewards, terms, reports, list(texts))
        cells = ["/".join(f"{scored[term][members].mean():.2f}" for _, members in groups)
                 for term in terms]  # fmt: skip
        rows.append([name, *cells])
    counts = " / ".join(f"{members.sum()} {name}" for name, members in groups)
    _table([f"report, on {counts} references", *terms], rows)


def _print_agreement(rewards: RewardService, terms: Sequence[str], path: Path) -> None:
    pairs = read_pairs(path)
    first = _scored(rewards, terms, pairs.first, pairs.references)
    second = _scored(rewards, terms, pairs.second, pairs.references)
    rows = []
    for term in terms:
        one = agreement(pairs.preferred, first[term] - second[term])
        counts = [str(one.right), str(one.wrong), str(one.tied)]
        rows.append([term, *counts, f"{one.tau:.3f} [{one.low:.3f}, {one.high:.3f}]"])
    print(f"{len(pairs.preferred)} pairs; tau-b with its 95 % interval over pairs\n")
    _table(["term", "right", "wrong", "tied", "tau-b"], rows)
    if "severity" in terms:
        print(CAVEAT)


def _verdict(values: Mapping[str, list[dict[str, float]]], *, strict: bool) -> int:
    dearer = {term: pairs for term, of in values.items() if (pairs := dearer_than_error(of))}
    for term, pairs in dearer.items():
        costs = "; ".join(f"{harmless!r} costs more than {error!r}" for harmless, error in pairs)
        print(f"{term}: {costs}")
    return int(strict and bool(dearer))


def _shares(right: float, tied: float, wrong: float) -> str:
    return "/".join(f"{100 * share:.0f}" for share in (right, tied, wrong))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print("\n".join([*aligned([header, *rows]), ""]))
