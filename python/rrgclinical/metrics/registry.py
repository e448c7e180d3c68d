"""List every metric once, with its title, direction, needs and way of computing; name them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rrgclinical.labels import OBSERVATIONS
from rrgclinical.metrics.labels import FREQUENT

CLINICAL, REWARD, TEXT = "clinical", "reward", "text"
"""Kinds in the order of tables: a constant normal report earns BLEU, and a clinical F1 of 0."""
LABELS, TERM, WORDS, CARD, RUN = "labels", "term", "words", "card", "run"

Measure = Callable[[Sequence[str], Sequence[str]], np.ndarray]
"""Reports and their references -> a value a report, float64 `[R]`."""


@dataclass(frozen=True)
class MetricDefinition:
    """A metric as scorecards, summaries, pages and recipes know it.

    source: how it is computed: LABELS by `label_scores`, WORDS by `text_scores`, TERM as the mean
    of a value a report, by the reward term of its name or by `measure`; all three are
    bootstrapped over studies, and so is CARD, which a scorecard computes by the labels of all its
    references, or of other metrics. RUN: what the trainer says of a run, without an interval.
    higher: True where more is better, None where neither is. A reward term rises as reports get
    better, so one of a metric with False is taken negative.
    reader: what the title is followed by: `labeller`, `frequent`, `extractor` or `tokenization`.
    needs: names of options, terms or extractors of a recipe, one of which makes it run, as
    `green` or `green.endpoint`; empty runs always. unless: extractors without it. models: backends
    whose files must be there. lacking: why it is absent; "" where nobody asks.
    main: shown of sub-groups, comparisons and in a run's summary. column: its head in the table
    that ends a run; "" leaves it out. percent, digits: how its values print.
    """

    title: str
    kind: str = CLINICAL
    source: str = TERM
    higher: bool | None = True
    reader: str = ""
    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    lacking: str = ""
    measure: Measure | None = None
    main: bool = True
    column: str = ""
    percent: bool = False
    digits: int | None = None


_AVERAGES = ("micro", "macro", "sample")
_RATES = {"precision": "precision", "recall": "recall", "f1": "F1"}
_SETS = {"": "14", "_13": "13", "_5": "5"}
_MAIN_LABELS = {"micro_precision", "micro_recall", "micro_f1", "macro_f1", "sample_f1"}
_MAIN_LABELS |= {"micro_f1_13", "macro_f1_13", "micro_f1_5", "macro_f1_5"}
_COLUMNS = {"micro_f1_13": "micro-F1, 13", "micro_f1": "micro-F1", "macro_f1": "macro-F1"}
_LEVELS = ("simple", "partial", "complete")
_NO_WEIGHTS = "no weights; set reward.options."


def _of_labels() -> dict[str, MetricDefinition]:
    titles = {
        f"{average}_{rate}{suffix}": f"{average}-{text}-{count}"
        for average in _AVERAGES
        for suffix, count in _SETS.items()
        for rate, text in _RATES.items()
    }
    titles |= {"accuracy": "accuracy of 14 labels", "exact_5": "all 5 right"}
    return {
        key: MetricDefinition(
            title,
            source=LABELS,
            reader="labeller",
            main=key in _MAIN_LABELS,
            column=_COLUMNS.get(key, ""),
        )
        for key, title in titles.items()
    }


def _of_words(title: str, *, main: bool = False, reader: str = "tokenization") -> MetricDefinition:
    return MetricDefinition(title, TEXT, WORDS, reader=reader, main=main)


def _radgraph(level: str) -> MetricDefinition:
    return MetricDefinition(
        f"RadGraph-F1, {level}",
        needs=("radgraph", *(f"radgraph_{each}" for each in _LEVELS)),
        models=("radgraph",),
        lacking=f"{_NO_WEIGHTS}radgraph.weights",
        column="RadGraph-F1" if level == "partial" else "",
    )


def _frequent(rate: str) -> MetricDefinition:
    title = f"macro-{_RATES[rate]}, labels with {FREQUENT} positives or more"
    return MetricDefinition(title, source=CARD, reader="frequent", main=rate == "f1")


METRICS: dict[str, MetricDefinition] = {
    **_of_labels(),
    **{f"macro_{rate}_frequent": _frequent(rate) for rate in _RATES},
    "entity_f1": MetricDefinition(
        "entity F1", reader="extractor", unless=("radgraph", "ratescore")
    ),
    # the form of RaTEScore, on the entities and cosines of the extractor
    "match": MetricDefinition("entity match", reader="extractor", unless=("radgraph", "ratescore")),
    "severity": MetricDefinition("severity (rules; ours, not GREEN or CRIMSON)"),
    **{
        name: MetricDefinition(f"grounding {title}", needs=("grounding_iou", "grounding_f1"))
        for name, title in (("grounding_iou", "IoU"), ("grounding_f1", "F1"))
    },
    **{f"radgraph_{level}": _radgraph(level) for level in _LEVELS},
    "ratescore": MetricDefinition(
        "RaTEScore",
        needs=("ratescore",),
        models=("ratescore",),
        lacking=f"{_NO_WEIGHTS}ratescore.ner and .embedder",
        column="RaTEScore",
    ),
    "radgraph-official": MetricDefinition(
        "RadGraph-F1 (its package)", needs=("radgraph-official",)
    ),
    "ratescore-official": MetricDefinition(
        "RaTEScore (its package)", needs=("ratescore-official",)
    ),
    "green": MetricDefinition(
        "GREEN",
        needs=("green.endpoint",),
        lacking="no model; set reward.options.green.endpoint and .model",
    ),
    "mean_of_seven": MetricDefinition("mean of EditGRPO's seven", source=CARD),
    "radcliq": MetricDefinition(
        "RadCliQ-v1 (less is better)",
        higher=False,
        needs=("bertscore",),
        models=("radgraph", "chexbert", "bertscore"),
        lacking=f"{_NO_WEIGHTS}bertscore.weights beside radgraph's and chexbert's",
    ),
    "reward": MetricDefinition("reward", REWARD, RUN, column="reward"),
    "zero_variance": MetricDefinition(
        "zero-variance groups", REWARD, RUN, None, column="zero var.", percent=True
    ),
    "words": MetricDefinition("words per report", REWARD, RUN, None, digits=1),
    "unfinished": MetricDefinition(
        "reports cut at the limit", REWARD, RUN, None, main=False, percent=True
    ),
    **{f"bleu_{n}": _of_words(f"BLEU-{n}", main=n == 4) for n in range(1, 5)},
    "rouge_l": _of_words("ROUGE-L", main=True),
    "meteor": _of_words("METEOR"),
    "cider": _of_words("CIDEr", main=True),
    "rouge_l_f1": _of_words("ROUGE-L F1, rouge-score", reader=""),
}
"""Every metric by its name, in the order of the tables."""

SEVEN = (
    *("micro_f1", "macro_f1", "micro_f1_5", "macro_f1_5"),
    *("radgraph_partial", "ratescore", "green"),
)
"""The columns whose mean EditGRPO prints as "Avg." (tables 1, 2, 5 and 6): `mean_of_seven`."""

FIRST = (
    *(("micro_f1_13",), ("micro_f1",), ("macro_f1",), ("macro_f1_frequent",)),
    ("radgraph_simple", "entity_f1"),
    *(("bleu_4",), ("rouge_l",)),
)
"""The rows at the head of a page: of each choice the first metric that was measured."""
HEADLINE = ("micro_f1_13", "micro_f1")
"""The metric of the sentence at the head of a page, the second where the first is unknown."""


def metric_of(key: str) -> MetricDefinition:
    """Describe a metric; one that is not listed, as `reward/match`, by its name."""
    if key in METRICS:
        return METRICS[key]
    head, slash, tail = key.partition("/")
    title = (f"{head}: {tail}" if slash else key).replace("_", " ")
    kind = CLINICAL if "f1" in head.split("_") and head != "reward" else REWARD
    return MetricDefinition(title, kind, RUN, True if head == "reward" else None, main=False)


def of_source(*sources: str) -> list[str]:
    """List the names of the metrics that are computed in one of these ways."""
    return [key for key, metric in METRICS.items() if metric.source in sources]


def measurable(named: Collection[str], extractor: str) -> tuple[list[str], dict[str, str]]:
    """Choose the TERM metrics that a recipe's models give; note what others lack.

    named: the recipe's options (`green`, `green.endpoint`), reward terms and extractor.
    """
    chosen, absent = [], {}
    for key in of_source(TERM):
        metric = METRICS[key]
        if extractor in metric.unless:
            continue
        if not metric.needs or not set(metric.needs).isdisjoint(named):
            chosen.append(key)
        elif metric.lacking:
            absent[key] = metric.lacking
    return chosen, absent


def in_order(keys: Iterable[str]) -> list[str]:
    """Sort names by kind, FIRST and main ones ahead, unlisted ones last."""
    unique, listed = list(dict.fromkeys(keys)), list(METRICS)
    first, kinds = [key for choice in FIRST for key in choice], (CLINICAL, REWARD, TEXT)

    def rank(key: str) -> tuple[int, int, bool, int]:
        metric = metric_of(key)
        head = first.index(key) if key in first else len(first)
        place = listed.index(key) if key in METRICS else len(listed)
        return kinds.index(metric.kind), head, not metric.main, place

    return sorted(unique, key=rank)


_READERS = {"chexbert": "CheXbert", "chexbert-official": "CheXbert"}


def labels_by(labeller: str) -> str:
    """Say what reads the labels, and where that is not CheXbert."""
    reader = _READERS.get(labeller)
    return f"labels by {reader}" if reader else f"labels by {labeller}, not CheXbert"


@dataclass(frozen=True)
class MetricName:
    """A metric as tables print it."""

    key: str
    label: str
    kind: str


def metric_names(
    keys: Iterable[str], *, labeller: str, extractor: str, tokenization: str, frequent: int = 0
) -> list[MetricName]:
    """Name and order metrics: labels, entities, what a reward measured, then words.

    frequent: how many of the 14 labels the averages over frequent ones hold.
    """
    reader = f" ({_READERS.get(labeller, labeller)})"
    endings = {
        "labeller": reader,
        "frequent": f": {frequent} of {len(OBSERVATIONS)}{reader}",
        "extractor": f" ({extractor})",
        "tokenization": f", {tokenization}",
        "": "",
    }
    unique = list(dict.fromkeys(keys))
    listed = [key for key in METRICS if key in unique]
    every = [*listed, *(key for key in unique if key not in METRICS)]
    named = [(key, metric_of(key)) for key in every]
    # in a scorecard a metric is clinical or of words
    texts = [(key, metric) for key, metric in named if metric.kind == TEXT]
    clinical = [(key, metric) for key, metric in named if metric.kind != TEXT]
    return [
        MetricName(key, f"{metric.title}{endings[metric.reader]}", kind)
        for kind, metrics in ((CLINICAL, clinical), (TEXT, texts))
        for key, metric in metrics
    ]
