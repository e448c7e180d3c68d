"""Measure how often intervals hold the truth, and p alarms between equal systems.

`python -m experiments.coverage` draws sets of studies out of a made population, whose values are
the truth, and scores them by the functions that scorecards use. It prints the tables of
docs/evaluation.md.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rrgclinical import OBSERVATIONS
from rrgclinical.labels import NO_FINDING
from rrgclinical.metrics import (
    Scores,
    finding_scores,
    frequent_labels,
    intervals,
    label_scores,
    of_patients,
    paired,
    together,
    values,
)
from rrgclinical.metrics.registry import TEXT, metric_of
from rrgclinical.text import TextScores, text_scores

IU_XRAY = (
    0.008,
    0.091,
    0.178,
    0.036,
    0.006,
    0.008,
    0.007,
    0.067,
    0.005,
    0.029,
    0.013,
    0.028,
    0.052,
)
"""Prevalence of the 13 findings as the rules read IU X-Ray's 2,365 reports."""
HOSPITAL = (0.07, 0.22, 0.24, 0.03, 0.18, 0.07, 0.15, 0.25, 0.05, 0.26, 0.012, 0.02, 0.29)
"""The same of a hospital's studies, about as MIMIC-CXR's CheXpert labels have them."""
RARE = 0.02
STUDIES_A_PATIENT = 5
SHOWN = (
    *("micro_f1", "micro_f1_13", "sample_f1", "macro_f1", "macro_f1_frequent", "f1/*"),
    *("bleu_4", "rouge_l", "meteor", "cider"),
)
"""Columns of the table; `f1/*` are the findings' own, all together."""
TESTED = ("micro_f1_13", "macro_f1", "macro_f1_5", "sample_f1")
SIZES = (50, 100, 200, 600)
WORDS = 600
"""Studies of a population with reports: METEOR takes a minute for them."""


@dataclass(frozen=True)
class System:
    """Sensitivity, and precision, of the findings that are common and of those that are rare."""

    common: float
    rare: float


SYSTEMS = {
    "F1 0.5": System(0.5, 0.5),
    "F1 0.2": System(0.2, 0.2),
    "F1 0.8": System(0.8, 0.8),
    "rare ones bad": System(0.6, 0.2),
    "rare ones never": System(0.6, 0.0),
}


@dataclass(frozen=True)
class Population:
    """Hold labels int8 `[N, 14]` of references and of two equal systems.

    texts: their reports and references, words: the scores of these; None without, and without
    them a scorecard's are of labels. patient: studies of one stand behind each other.
    """

    truth: np.ndarray
    first: np.ndarray
    second: np.ndarray
    patient: int = 1
    texts: tuple[list[str], list[str]] | None = None
    words: TextScores | None = None

    def draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the rows of `size` patients, which are studies where each has one."""
        patients = rng.integers(0, len(self.truth) // self.patient, size)
        return (patients[:, None] * self.patient + np.arange(self.patient)).ravel()


def population(
    prevalences: Sequence[float],
    system: System,
    *,
    size: int = 12_000,
    patient: int = 1,
    words: int = 0,
    meteor: bool = False,
) -> Population:
    """Make studies with findings of these prevalences, and what two equal systems read.

    patient: studies of one, each with its first labels by chance 0.5 and its errors by 0.3. words:
    make reports, of so many studies at most, and score them, by METEOR where that is asked for.
    """
    rng, prevalence = np.random.default_rng(0), np.array(prevalences)
    size = words or size
    shape = (size // patient, patient, len(prevalence))

    def shared(drawn: np.ndarray, chance: float) -> np.ndarray:
        same = rng.random((*shape[:2], 1)) < chance
        return np.where(same, drawn[:, :1], drawn)

    truth = shared(rng.random(shape) < prevalence, 0.5)
    rate = np.where(prevalence < RARE, system.rare, system.common)
    false = prevalence * (1.0 - rate) / (1.0 - prevalence) * (rate > 0)

    def read() -> np.ndarray:
        chance = shared(rng.random(shape), 0.3)
        return _labels(np.where(truth, chance < rate, chance < false))

    first, second = read(), read()
    made = Population(_labels(truth), first, second, patient)
    if not words:
        return made
    own, others = ([_report(row, rng) for row in labels] for labels in (made.first, made.truth))
    scores = text_scores(own, others, tokenization="space", meteor=meteor)
    return replace(made, texts=(own, others), words=scores)


def _labels(findings: np.ndarray) -> np.ndarray:
    flat = findings.reshape(-1, NO_FINDING).astype(np.int8)
    return np.concatenate([flat, 1 - flat.max(1, keepdims=True)], axis=1)


def _report(labels: np.ndarray, rng: np.random.Generator) -> str:
    """Write a sentence of each finding there is, and of some that there are not."""
    names = [name.lower() for name in OBSERVATIONS[:NO_FINDING]]
    denied = rng.random(NO_FINDING) < 0.4
    sentences = [
        f"there is {rng.choice(('mild', 'moderate', 'severe'))} {name} ."
        if there
        else f"no {name} ."
        for name, there, said in zip(names, labels, denied, strict=False)
        if there or said
    ]
    return " ".join(rng.permutation(sentences))


def _scores(made: Population, rows: np.ndarray) -> Scores:
    """Score a set of studies as a scorecard does; CIDEr's frequencies are those of the set."""
    if made.texts is None or made.words is None:
        pred, truth = made.first[rows], made.truth[rows]
        scores = together(
            label_scores(pred, truth, frequent_labels(truth)), finding_scores(pred, truth)
        )
    else:
        own, others = ([texts[row] for row in rows] for texts in made.texts)
        drawn = text_scores(own, others, tokenization="space", meteor=False)
        # a Java program that takes seconds: each report's counts are what they were
        counts = (part for part in made.words.parts if part.key == "meteor")
        meteor = (replace(part, statistics=part.statistics[rows]) for part in counts)
        scores = Scores((*drawn.parts, *meteor))
    if made.patient == 1:
        return scores
    return of_patients(scores, (np.arange(len(rows)) // made.patient).tolist())


def coverage(
    made: Population, studies: int, repetitions: int, *, resamples: int = 1000, seed: int = 1
) -> dict[str, float]:
    """Measure the share of repetitions whose interval holds the population's value, by metric.

    `f1/*` is of all findings with a positive, whose cells alone a scorecard prints.
    """
    rng = np.random.default_rng(seed)
    parts = [label_scores(made.first, made.truth), finding_scores(made.first, made.truth)]
    true = values(together(*parts) if made.words is None else made.words)
    held: dict[str, list[bool]] = {}
    for _ in range(repetitions):
        rows = made.draw(studies, rng)
        for rate in ("precision", "recall", "f1") if made.words is None else ():
            of_each = [true[f"{rate}/{OBSERVATIONS[i]}"] for i in frequent_labels(made.truth[rows])]
            true[f"macro_{rate}_frequent"] = float(np.mean(of_each)) if of_each else np.nan
        occurs = made.truth[rows].any(0)
        printed = {f"f1/{name}" for name, there in zip(OBSERVATIONS, occurs, strict=True) if there}
        bounds = intervals(_scores(made, rows), resamples=resamples)
        for name, (low, high) in bounds.items():
            if "/" not in name or name in printed:
                column = "f1/*" if name in printed else name
                inside = low - 1e-9 <= true[name] <= high + 1e-9
                held.setdefault(column, []).append(inside)
    return {name: float(np.mean(each)) for name, each in held.items()}


def false_alarms(
    made: Population, studies: int, repetitions: int, *, differ: int = 0, resamples: int = 1000
) -> dict[str, float]:
    """Measure the share of tests of equal systems with p < 0.05, by metric.

    differ: their labels differ in so many studies alone; 0 for all.
    """
    rng = np.random.default_rng(2)
    alarms: dict[str, list[bool]] = {}
    for _ in range(repetitions):
        rows = made.draw(studies, rng)
        second = made.second.copy() if differ else made.second
        if differ:
            alike = np.flatnonzero((made.first[rows] != made.second[rows]).any(1))[differ:]
            second[rows[alike]] = made.first[rows[alike]]
        pairs = paired(
            *(label_scores(labels[rows], made.truth[rows]) for labels in (made.first, second)),
            resamples=resamples,
        )
        for name in TESTED:
            p = pairs[name].p_value
            alarms.setdefault(name, []).append(p is not None and p < 0.05)
    return {name: float(np.mean(each)) for name, each in alarms.items()}


def tables(repetitions: int, sizes: Sequence[int], shown: Sequence[str]) -> Iterator[str]:
    """Yield the lines of both tables: mean, least and most of all settings."""
    settings = itertools.product((IU_XRAY, HOSPITAL), SYSTEMS.values(), (1, STUDIES_A_PATIENT))
    of_words, meteor = {metric_of(name).kind == TEXT for name in shown}, "meteor" in shown
    made = [
        population(found, system, patient=studies, words=words, meteor=meteor)
        for found, system, studies in settings
        for words in (0, WORDS)
        if (words > 0) in of_words
    ]
    yield from _head("studies, or patients", shown)
    for size in sizes:
        yield _row(str(size), [coverage(one, size, repetitions) for one in made], shown)
    yield ""
    made = [population(found, SYSTEMS["F1 0.5"]) for found in (IU_XRAY, HOSPITAL)]
    yield from _head("studies", TESTED)
    for size, differ in (*((size, 0) for size in sizes), (200, 4), (200, 6), (200, 12)):
        shares = [false_alarms(one, size, repetitions, differ=differ) for one in made]
        yield _row(f"{size}, {differ} differ" if differ else str(size), shares, TESTED)


def _head(corner: str, names: Sequence[str]) -> list[str]:
    return [f"| {corner} | {' | '.join(f'`{n}`' for n in names)} |", f"|---{'|---' * len(names)}|"]


def _row(label: str, shares: Sequence[Mapping[str, float]], names: Sequence[str]) -> str:
    cells = [_range([share[name] for share in shares if name in share]) for name in names]
    return f"| {label} | {' | '.join(cells)} |"


def _range(shares: Sequence[float]) -> str:
    mean, low, high = (
        f"{100 * share:.1f}" for share in (np.mean(shares), min(shares), max(shares))
    )
    return low if low == high else f"{mean} ({low} to {high})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 0 on success."""
    parser = argparse.ArgumentParser(prog="python -m experiments.coverage", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=400, help="of each setting")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="studies of a set")
    parser.add_argument("--metrics", nargs="+", default=SHOWN, help="columns of the table")
    options = parser.parse_args(arguments)
    for line in tables(options.repetitions, options.sizes, options.metrics):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
