"""Name the metrics of a scorecard by what read them, clinical ones first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rrgclinical.labels import OBSERVATIONS
from rrgclinical.metrics.registry import CLINICAL, METRICS, TEXT, metric_of

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
