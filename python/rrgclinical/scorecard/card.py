"""Compute a scorecard: every metric of every system, by sub-group, by finding, and in pairs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rrgclinical.labels import (
    CHEXPERT_5,
    NO_FINDING,
    OBSERVATIONS,
    SUPPORT_DEVICES,
    to_binary,
)
from rrgclinical.metrics import (
    PairedDifference,
    Scores,
    finding_scores,
    intervals,
    label_scores,
    mean_scores,
    paired,
    subgroup,
    together,
    values,
)
from rrgclinical.scorecard.names import MetricName, metric_names
from rrgclinical.scorecard.pairs import Pairs

RARE = 0.05
"""Prevalence in the truth below which a finding is rare."""


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
    """A sub-group of n studies by its rule: system -> metric -> value."""

    name: str
    rule: str
    n: int
    systems: dict[str, dict[str, Value]]


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


def scorecard(
    pairs: Pairs,
    truth: np.ndarray,
    readings: Mapping[str, SystemReading],
    settings: CardSettings | None = None,
    *,
    absent: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Scorecard:
    """Score every system that was read, in the order of `readings`.

    truth: int8 `[R, 14]` class ids of the studies of `pairs`. Metrics over findings are undefined,
    and left out, in a group whose truth has none of them.
    """
    settings = settings or CardSettings()
    absent = dict(absent or {})
    scores = {name: _scores(reading, truth) for name, reading in readings.items()}
    groups = [
        Group(
            name,
            rule,
            int(members.sum()),
            {s: _values(subgroup(scores[s], members), settings, truth[members]) for s in scores},
        )
        for name, rule, members in _groups(truth)
        if members.any()
    ]
    keys = [key for system in groups[0].systems.values() for key in system]
    comparisons = [
        Comparison(first, second, paired(scores[first], scores[second], **_draws(settings)))
        for first, second in itertools.combinations(scores, 2)
    ]
    return Scorecard(
        len(truth),
        list(readings),
        metric_names(
            [*keys, *absent],
            labeller=settings.labeller,
            extractor=settings.extractor,
            tokenization=settings.tokenization,
        ),
        groups,
        _findings(truth, readings, settings),
        comparisons,
        absent,
        settings,
        [*pairs.notes, *notes, *_explained(comparisons, truth, settings)],
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


def _scores(reading: SystemReading, truth: np.ndarray) -> Scores:
    parts = [label_scores(reading.labels, _truth_of(reading, truth))]
    if reading.scores:
        parts.append(mean_scores(reading.scores))
    if reading.text is not None:
        parts.append(reading.text)
    return together(*parts)


def _truth_of(reading: SystemReading, truth: np.ndarray) -> np.ndarray:
    return truth if reading.truth is None else reading.truth


def _draws(settings: CardSettings) -> dict[str, Any]:
    return {"resamples": settings.resamples, "level": settings.level, "seed": settings.seed}


def _values(scores: Scores, settings: CardSettings, truth: np.ndarray) -> dict[str, Value]:
    bounds = intervals(scores, **_draws(settings))
    metrics = {name: Value(value, *bounds[name]) for name, value in values(scores).items()}
    if not to_binary(truth)[:, :NO_FINDING].any():
        # no finding to be found: precision and recall are 0 / n and 0 / 0
        for name in [n for n in metrics if n.startswith("macro_") or n.endswith(("_13", "_5"))]:
            if name != "exact_5":
                del metrics[name]
    return metrics


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
    truth: np.ndarray, readings: Mapping[str, SystemReading], settings: CardSettings
) -> list[Finding]:
    f1_of = {}
    for system, reading in readings.items():
        scores = finding_scores(reading.labels, _truth_of(reading, truth))
        bounds = intervals(scores, **_draws(settings))
        f1_of[system] = {n: Value(v, *bounds[n]) for n, v in values(scores).items()}
    positives = to_binary(truth).sum(0)
    return [
        Finding(
            name,
            int(count),
            {
                system: {rate: rows[f"{rate}/{name}"] for rate in ("precision", "recall", "f1")}
                for system, rows in f1_of.items()
            },
        )
        for name, count in zip(OBSERVATIONS, positives, strict=True)
    ]


def _explained(
    comparisons: Sequence[Comparison], truth: np.ndarray, settings: CardSettings
) -> list[str]:
    lines = ["Intervals resample studies only; variation between training seeds is not included."]
    lines += _undefined(truth, settings.level)
    count = sum(len(c.differences) for c in comparisons)
    if count:
        # the observed difference counts as a resample, and both tails do
        least = min(1.0, 2.0 / (settings.resamples + 1))
        lines.append(
            f"{count} paired differences ({len(comparisons)} pairs of systems, "
            f"{count // len(comparisons)} metrics) have p-values, uncorrected for their number; "
            f"with {settings.resamples} resamples none can be below {least:.2g}."
        )
    if len(truth) < 100:
        lines.append(f"{len(truth)} studies are few: intervals by resampling are then too narrow.")
    return lines


def _undefined(truth: np.ndarray, level: float) -> list[str]:
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
    studies, counts = len(truth), positive.sum(0)
    few = [
        f"{name} ({count})"
        for name, count in zip(OBSERVATIONS, counts, strict=True)
        # the share of resamples without a positive, against one tail
        if count and (1 - count / studies) ** studies > (1 - level) / 2
    ]
    if few:
        lines.append(
            f"Intervals of findings with few positives reach 0, whatever was written, for too many "
            f"resamples have none: {', '.join(few)}."
        )
    return lines


def _listed(most: Mapping[str, float]) -> str:
    return ", ".join(f"{value:.3f} over {name}" for name, value in most.items())
