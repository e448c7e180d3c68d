"""Compute a scorecard: every metric of every system, by sub-group, by finding, and in pairs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rrgclinical import metrics as stats
from rrgclinical.labels import CHEXPERT_5, NO_FINDING, OBSERVATIONS, SUPPORT_DEVICES, to_binary
from rrgclinical.metrics import FREQUENT, LEAST_DIFFERING, PairedDifference, Scores
from rrgclinical.metrics.registry import SEVEN, MetricName, metric_names, metric_of
from rrgclinical.scorecard.pairs import Pairs

RARE = 0.05
"""Prevalence in the truth below which a finding is rare."""
LEAST_SIZE = 100
"""Studies (or patients) from which intervals hold within 2 points of their level."""


@dataclass(frozen=True)
class SystemReading:
    """One system as it was read: labels int8 `[R, 14]`, scores by name float64 `[R]`.

    text: scores of its words, None where there are no reference reports. reasons: what severity's
    value of each report was made of, empty where it was not measured. truth: int8 `[R, 14]`, where
    it is judged by other labels than the other systems, as after a resume.
    """

    labels: np.ndarray
    scores: Mapping[str, np.ndarray] = field(default_factory=dict)
    text: Scores | None = None
    reasons: Sequence[Mapping[str, Any]] = ()
    truth: np.ndarray | None = None


@dataclass(frozen=True)
class CardSettings:
    """Choose the resamples, and name what read the reports."""

    resamples: int = 1000
    level: float = 0.95
    seed: int = 0
    labeller: str = "rules"
    extractor: str = "rules"
    tokenization: str = ""


@dataclass(frozen=True)
class Value:
    """A metric with the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Group:
    """A sub-group of n studies by its rule: system -> metric -> value.

    ceilings: what the references themselves have, by metric, where that is not 1.
    """

    name: str
    rule: str
    n: int
    systems: dict[str, dict[str, Value]]
    ceilings: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """One observation: positives in the truth, and system -> precision, recall, f1 -> value."""

    name: str
    positives: int
    systems: dict[str, dict[str, Value]]


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same reports: `second` minus `first`, by metric."""

    first: str
    second: str
    differences: dict[str, PairedDifference]


@dataclass(frozen=True)
class Scorecard:
    """The numbers of the tables; `absent` maps metrics that could not run to the reason."""

    studies: int
    systems: list[str]
    metrics: list[MetricName]
    groups: list[Group]
    findings: list[Finding]
    comparisons: list[Comparison]
    absent: dict[str, str]
    settings: CardSettings
    notes: list[str]
    patients: int | None = None
    """Number of patients that intervals draw, None where they draw studies."""


def scorecard(  # noqa: PLR0913
    pairs: Pairs,
    truth: np.ndarray,
    readings: Mapping[str, SystemReading],
    settings: CardSettings | None = None,
    *,
    absent: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    words: Scores | None = None,
) -> Scorecard:
    """Score every system that was read, in the order of `readings`.

    truth: int8 `[R, 14]` class ids of the studies of `pairs`. Metrics over findings are undefined,
    and left out, in a group whose truth has none of them. words: what the references themselves
    would have as reports.
    """
    settings = settings or CardSettings()
    absent = dict(absent or {})
    # a study whose patient is unknown is drawn by itself
    patients = pairs.patients or [""] * len(truth)
    units = [name or row for row, name in enumerate(patients)]
    count, unit = len(set(units)), "patients" if any(patients) else "studies"
    frequent = stats.frequent_labels(truth)

    def drawn(scores: Scores, members: np.ndarray) -> Scores:
        chosen = list(itertools.compress(units, members))
        return stats.of_patients(stats.subgroup(scores, members), chosen)

    scores = {name: _scores(reading, truth, frequent) for name, reading in readings.items()}
    perfect = _scores(SystemReading(truth, text=words), truth, frequent)
    groups = [
        Group(
            name,
            rule,
            int(members.sum()),
            {
                system: _values(drawn(one, members), settings, truth[members], frequent)
                for system, one in scores.items()
            },
            _ceilings(stats.subgroup(perfect, members), truth[members], frequent),
        )
        for name, rule, members in [*_groups(truth), *pairs.groups]
        if members.any()
    ]
    keys = [key for system in groups[0].systems.values() for key in system]
    everyone = np.ones(len(truth), dtype=bool)
    whole = {name: drawn(one, everyone) for name, one in scores.items()}
    comparisons = [
        Comparison(first, second, stats.paired(whole[first], whole[second], **_draws(settings)))
        for first, second in itertools.combinations(whole, 2)
    ]
    each = {
        name: drawn(stats.finding_scores(reading.labels, _truth_of(reading, truth)), everyone)
        for name, reading in readings.items()
    }
    # measured by experiments/coverage
    few = (
        f"{count} {unit} are few: intervals hold within 2 points of their level from {LEAST_SIZE}."
    )
    return Scorecard(
        len(truth),
        list(readings),
        metric_names(
            [*keys, *absent],
            labeller=settings.labeller,
            extractor=settings.extractor,
            tokenization=settings.tokenization,
            frequent=len(frequent),
        ),
        groups,
        _findings(truth, each, settings),
        comparisons,
        absent,
        settings,
        [
            *pairs.notes,
            *notes,
            f"Intervals resample {unit} only; variation between training seeds is not included.",
            *_undefined(truth),
            *_about_tests(comparisons, settings, unit),
            *([few] if count < LEAST_SIZE else []),
        ],
        count if any(patients) else None,
    )


def tests_shown(comparisons: Sequence[Comparison]) -> int:
    """Count the p-values of main metrics, which the table of differences holds."""
    return sum(
        of_metric.p_value is not None and metric_of(key).main
        for comparison in comparisons
        for key, of_metric in comparison.differences.items()
    )


def joined_truth(labels: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Join the labels of several references a study by majority; int8 `[R, 14]`.

    labels: int8 `[N, 14]` of N references; owner: int64 `[N]`, the study 0..R-1 of each. Where a
    study has one reference its class ids stay; of several a label is positive where at least half
    of them are positive or uncertain, else blank; No Finding is blank beside a positive finding.
    """
    count = np.bincount(owner)
    votes = np.zeros((len(count), labels.shape[1]), dtype=np.int64)
    np.add.at(votes, owner, to_binary(labels))
    truth = (2 * votes >= count[:, None]).astype(np.int8)
    # references that disagree may give both half of the votes
    abnormal = np.delete(truth[:, :NO_FINDING], SUPPORT_DEVICES, axis=1).any(1)
    truth[abnormal, NO_FINDING] = 0
    single = count[owner] == 1
    truth[owner[single]] = labels[single]
    return truth


def _scores(reading: SystemReading, truth: np.ndarray, frequent: Sequence[int]) -> Scores:
    parts = [stats.label_scores(reading.labels, _truth_of(reading, truth), frequent)]
    if reading.scores:
        parts.append(stats.mean_scores(reading.scores))
    if reading.text is not None:
        parts.append(reading.text)
    return stats.averaged(stats.together(*parts), SEVEN, "mean_of_seven")


def _truth_of(reading: SystemReading, truth: np.ndarray) -> np.ndarray:
    return truth if reading.truth is None else reading.truth


def _draws(settings: CardSettings) -> dict[str, Any]:
    return {"resamples": settings.resamples, "level": settings.level, "seed": settings.seed}


def _values(
    scores: Scores, settings: CardSettings, truth: np.ndarray, frequent: Sequence[int]
) -> dict[str, Value]:
    bounds = stats.intervals(scores, **_draws(settings))
    metrics = defined(stats.values(scores), truth, frequent)
    return {name: Value(value, *bounds[name]) for name, value in metrics.items()}


def _ceilings(scores: Scores, truth: np.ndarray, frequent: Sequence[int]) -> dict[str, float]:
    most = defined(stats.values(scores), truth, frequent)
    return {name: value for name, value in most.items() if f"{value:.3f}" != "1.000"}


def defined(
    metrics: Mapping[str, float], truth: np.ndarray, frequent: Sequence[int]
) -> dict[str, float]:
    """Leave out what a truth int8 `[R, 14]` does not define.

    frequent: the labels that tables name.
    """
    left_out: tuple[str, ...] = ()
    if not to_binary(truth)[:, :NO_FINDING].any():
        # no finding to be found: precision and recall are 0 / n and 0 / 0
        left_out = ("_13", "_5", "mean_of_seven")
        metrics = {n: v for n, v in metrics.items() if not n.startswith("macro_")}
    if stats.frequent_labels(truth) != frequent:
        # the name in the tables says which labels these are
        left_out += ("_frequent",)
    return {n: v for n, v in metrics.items() if n == "exact_5" or not n.endswith(left_out)}


def _groups(truth: np.ndarray) -> list[tuple[str, str, np.ndarray]]:
    positive = to_binary(truth).astype(bool)[:, :NO_FINDING]
    prevalence = positive.mean(0)
    rare = (prevalence > 0) & (prevalence < RARE)
    named = ", ".join(o for o, is_rare in zip(OBSERVATIONS, rare, strict=False) if is_rare)
    abnormal: np.ndarray = np.asarray(positive.any(1))
    return [
        ("all", "all studies", np.ones(len(truth), dtype=bool)),
        (
            "normal",
            "no positive among the 13 findings in the truth, so metrics over them are undefined",
            ~abnormal,
        ),
        ("abnormal", "at least one positive of the 13 findings in the truth", abnormal),
        (
            "rare",
            f"a positive finding of a prevalence below {RARE:.0%} in the truth ({named})",
            np.asarray(positive[:, rare].any(1)),
        ),
    ]


def _findings(
    truth: np.ndarray, scores: Mapping[str, Scores], settings: CardSettings
) -> list[Finding]:
    rates_of = {}
    for system, one in scores.items():
        bounds = stats.intervals(one, **_draws(settings))
        rates_of[system] = {name: Value(v, *bounds[name]) for name, v in stats.values(one).items()}
    positives = to_binary(truth).sum(0)
    return [
        Finding(
            name,
            int(count),
            {
                system: {rate: rows[f"{rate}/{name}"] for rate in ("precision", "recall", "f1")}
                for system, rows in rates_of.items()
            },
        )
        for name, count in zip(OBSERVATIONS, positives, strict=True)
    ]


def _about_tests(comparisons: Sequence[Comparison], settings: CardSettings, unit: str) -> list[str]:
    every = [d.p_value for c in comparisons for d in c.differences.values()]
    tested, shown = sum(p is not None for p in every), tests_shown(comparisons)
    lines = []
    if tested:
        lines.append(
            f"The table of differences holds {shown} p-values of the swap test, the file {tested}, "
            f"uncorrected: between equal systems {0.05 * shown:.1f} of {shown} are below 0.05, "
            f"so choose one metric before you look. With {settings.resamples} swaps none can be "
            f"below {1.0 / (settings.resamples + 1):.2g}."
        )
    if tested < len(every):
        lines.append(
            f"p is - where two systems differ in fewer than {LEAST_DIFFERING} {unit}: a test of so "
            "few cannot tell them apart."
        )
    return lines


def _undefined(truth: np.ndarray) -> list[str]:
    """Tell what keeps averages of even a perfect system below 1, and intervals at 0."""
    positive = to_binary(truth).astype(bool)
    if not positive[:, :NO_FINDING].any():
        # those metrics are left out
        return []
    sets = {"14": range(len(OBSERVATIONS)), "13": range(NO_FINDING), "5": CHEXPERT_5}
    lines = []
    occurs, predicted = (
        {name: float(positive[:, list(columns)].any(axis).mean()) for name, columns in sets.items()}
        for axis in (0, 1)
    )
    if occurs["14"] < 1:
        absent = int((~positive.any(0)).sum())
        lines.append(
            f"{absent} of 14 observations are positive in no reference; macro averages count each "
            f"as 0 and are at most {_listed(occurs)}."
        )
    if min(predicted.values()) < 1:
        lines.append(
            "Sample-wise averages count a reference without any of their labels as 0 and are at "
            f"most {_listed(predicted)}."
        )
    few = [
        f"{name} ({count})"
        for name, count in zip(OBSERVATIONS, positive.sum(0), strict=True)
        if 0 < count < FREQUENT
    ]
    if few:
        lines.append(
            f"Macro averages over 14, 13 and 5 labels hold labels with fewer than {FREQUENT} "
            f"positives ({', '.join(few)}), which one study moves far, and their intervals miss: "
            f"read an average over labels with {FREQUENT} or more."
        )
    return lines


def _listed(most: Mapping[str, float]) -> str:
    return ", ".join(f"{value:.3f} over {name}" for name, value in most.items())
