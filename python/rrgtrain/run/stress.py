"""Stress the terms of a reward: planted errors, orders, gaming, and a reader's own pairs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from rrgclinical.scorecard import read_references
from rrgclinical.severity import caveat
from rrgclinical.stress import (
    agreement_table,
    dearer_than_error,
    gaming_table,
    means_table,
    orders_table,
    plant,
    read_pairs,
    values_of,
)
from rrgdata.phantom import phantom_reports
from rrgdata.settings import DataSettings
from rrgtrain.errors import RewardError, UserError
from rrgtrain.rewards import RewardService
from rrgtrain.run.data import read_studies, split_of
from rrgtrain.schema import Recipe


def stress(
    recipe: Recipe,
    *,
    studies: int = 150,
    reports: Path | None = None,
    against: Path | None = None,
    strict: bool = False,
) -> int:
    """Print the tables of each term of the recipe's reward; return the exit status.

    studies: how many reports errors are planted in. reports, against: files to read.
    1 with `strict` where a harmless change costs more than a critical error. UserError for a term
    that fails on an empty report, files that cannot be read, reports that nothing can be planted
    in, and words that do not go together.
    """
    if against and (reports or strict):
        raise UserError("--against plants no errors; leave out --reports and --strict")
    rewards = RewardService(recipe.reward)
    terms = list(recipe.reward.terms)
    context = rewards.model("severity").context if "severity" in terms else None
    questions = {
        f"severity, {name}": text for name, text in (context.examples() if context else {}).items()
    }
    score = partial(_scored, rewards, terms, questions)
    if against is not None:
        pairs = read_pairs(against)
        table = agreement_table(score, pairs)
        print(f"{pairs.counts()}; tau-b with its 95 % interval over pairs\n")
        print(table)
        if "severity" in terms:
            print(caveat(rewards.model("severity").table))
        return 0
    if studies < 1:
        raise UserError(f"--studies {studies}; wanted at least 1")
    texts = _texts(recipe.data, recipe.eval.split, reports)
    for _, value in rewards.measure(terms, [""], [texts[0]]):
        if isinstance(value, RewardError):
            score(texts[:1], texts[:1])  # one that fails on any report is not told as of an empty
            raise UserError(f"an empty report stops a run: {value}")
    planted = plant(texts, studies, recipe.seed)
    if not planted:
        raise UserError(
            f"none of {len(texts)} reports has 15 to 120 words and room for a critical and a minor "
            "finding; give other reports by --reports FILE"
        )
    values = values_of(score, planted)
    count = sum(map(len, planted))
    print(f"{len(planted)} reports, {count} pairs; 1 is the value of the reference itself\n")
    print(means_table(values))
    print(orders_table(values))
    print(gaming_table(score, [*terms, *questions], texts[:studies]))
    if "severity" in terms:
        print(f"{caveat(rewards.model('severity').table)}\n")
    dearer = {term: both for term, of in values.items() if (both := dearer_than_error(of))}
    for term, both in dearer.items():
        costs = "; ".join(f"{harmless!r} costs more than {error!r}" for harmless, error in both)
        print(f"{term}: {costs}")
    return int(strict and bool(dearer))


def _texts(data: DataSettings, split: str, reports: Path | None) -> list[str]:
    """Reports to plant errors in: of a file, of phantoms, or of the recipe's data."""
    if reports is not None:
        columns = read_references(reports, split=split).texts
        texts = [text for column in columns for text in column]
    elif data.source == "phantom":
        texts = phantom_reports(data.phantom)
    else:
        with tempfile.TemporaryDirectory() as work:
            studies = split_of(read_studies(data, Path(work)), split)
        texts = [study.report or "" for study in studies]
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise UserError("there is no report to plant errors in; give some by --reports FILE")
    return texts


def _scored(
    rewards: RewardService,
    terms: Sequence[str],
    questions: Mapping[str, str],
    reports: Sequence[str],
    references: Sequence[str],
) -> dict[str, np.ndarray]:
    """Score by each term, and by `severity` with each of the indications."""
    scored = {}
    for term, value in rewards.measure(terms, reports, references):
        if isinstance(value, RewardError):
            raise value
        scored[term] = value
    for name, indication in questions.items():
        context = [indication] * len(reports)
        judged = rewards.model("severity").judge(reports, references, None, context)
        scored[name] = np.array([one.score for one in judged])
    return scored
