"""Name the metrics of a scorecard by what read them, clinical ones first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

CLINICAL, TEXT = "clinical", "text"

_READERS = {
    "rules": "rules",
    "chexbert": "CheXbert",
    "chexbert-official": "CheXbert",
}
_AVERAGES = ("micro", "macro", "sample")
_RATES = {"precision": "precision", "recall": "recall", "f1": "F1"}
_SETS = {"": "14", "_13": "13", "_5": "5"}
# `match` has the form of RaTEScore, on the entities and cosines of the extractor.
_ENTITIES = {
    "entity_f1": "entity F1 ({})",
    "match": "entity match ({})",
    "severity": "severity (rules; ours, not GREEN or CRIMSON)",
    "radgraph_simple": "RadGraph-F1, simple",
    "radgraph_partial": "RadGraph-F1, partial",
    "radgraph_complete": "RadGraph-F1, complete",
    "ratescore": "RaTEScore",
    "radgraph-official": "RadGraph-F1 (its package)",
    "ratescore-official": "RaTEScore (its package)",
    "green": "GREEN",
    "radcliq": "RadCliQ-v1 (less is better)",
}
_TEXT = {
    **{f"bleu_{n}": f"BLEU-{n}" for n in range(1, 5)},
    "rouge_l": "ROUGE-L",
    "meteor": "METEOR",
    "cider": "CIDEr",
}
_OWN_WORDS = {"rouge_l_f1": "ROUGE-L F1, rouge-score"}
MAIN = (
    *("micro_f1", "macro_f1", "micro_f1_13", "macro_f1_13", "micro_f1_5", "macro_f1_5"),
    *("sample_f1", *_ENTITIES, "bleu_4", "rouge_l", "cider"),
)
"""Metrics that are shown of sub-groups and comparisons; the files hold all."""
FIRST = (
    *(("micro_f1_13",), ("micro_f1",), ("macro_f1",), ("radgraph_simple", "entity_f1")),
    *(("bleu_4",), ("rouge_l",)),
)
"""The rows at the head of a page: of each choice the first metric that was measured."""


@dataclass(frozen=True)
class MetricName:
    """A metric as tables print it."""

    key: str
    label: str
    kind: str


def metric_names(
    keys: Iterable[str], *, labeller: str, extractor: str, tokenization: str
) -> list[MetricName]:
    """Name and order metrics: labels, entities, what a reward measured, then words."""
    reader = _READERS.get(labeller, labeller)
    names = _label_names(reader)
    names |= {key: text.format(extractor) for key, text in _ENTITIES.items()}
    words = {key: f"{text}, {tokenization}" for key, text in _TEXT.items()} | _OWN_WORDS
    unique = list(dict.fromkeys(keys))
    clinical = [key for key in names if key in unique]
    clinical += [key for key in unique if key not in names and key not in words]
    return [
        *(MetricName(key, names.get(key, key), CLINICAL) for key in clinical),
        *(MetricName(key, words[key], TEXT) for key in words if key in unique),
    ]


def _label_names(reader: str) -> dict[str, str]:
    named = {}
    for average in _AVERAGES:
        for suffix, count in _SETS.items():
            for rate, text in _RATES.items():
                named[f"{average}_{rate}{suffix}"] = f"{average}-{text}-{count} ({reader})"
    named["accuracy"] = f"accuracy of 14 labels ({reader})"
    named["exact_5"] = f"all 5 right ({reader})"
    return named
