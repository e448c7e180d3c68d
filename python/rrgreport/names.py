"""Names and order of metrics and edit rules in tables and figures.

Clinical metrics come first: a constant template report earns a respectable BLEU and a clinical
F1 of 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

CLINICAL, REWARD, TEXT = "Clinical", "Reward and training", "Text overlap"
GROUPS = (CLINICAL, REWARD, TEXT)


@dataclass(frozen=True)
class MetricName:
    """`percent` values are shares shown as 12 %; `higher` says which direction is better, None
    neither; `digits` are those behind the point where a value's size does not give them."""

    label: str
    group: str
    percent: bool = False
    higher: bool | None = True
    digits: int | None = None


METRICS: dict[str, MetricName] = {
    "micro_f1": MetricName("micro-F1, 14 findings", CLINICAL),
    "macro_f1": MetricName("macro-F1, 14 findings", CLINICAL),
    "micro_f1_13": MetricName("micro-F1, 13 findings", CLINICAL),
    "micro_f1_5": MetricName("micro-F1, 5 findings", CLINICAL),
    "macro_f1_5": MetricName("macro-F1, 5 findings", CLINICAL),
    "sample_f1": MetricName("sample-wise F1", CLINICAL),
    "micro_precision": MetricName("micro-precision, 14 findings", CLINICAL),
    "micro_recall": MetricName("micro-recall, 14 findings", CLINICAL),
    "radgraph_partial": MetricName("RadGraph-F1, partial", CLINICAL),
    "radgraph_simple": MetricName("RadGraph-F1, simple", CLINICAL),
    "radgraph_complete": MetricName("RadGraph-F1, complete", CLINICAL),
    "ratescore": MetricName("RaTEScore", CLINICAL),
    "green": MetricName("GREEN", CLINICAL),
    "reward": MetricName("reward", REWARD),
    "zero_variance": MetricName("zero-variance groups", REWARD, percent=True, higher=None),
    "words": MetricName("words per report", REWARD, higher=None, digits=1),
    "bleu_1": MetricName("BLEU-1", TEXT),
    "bleu_2": MetricName("BLEU-2", TEXT),
    "bleu_3": MetricName("BLEU-3", TEXT),
    "bleu_4": MetricName("BLEU-4", TEXT),
    "rouge_l": MetricName("ROUGE-L", TEXT),
    "meteor": MetricName("METEOR", TEXT),
    "cider": MetricName("CIDEr", TEXT),
}

RULES: dict[str, str] = {
    "a": "conflict",
    "b": "replacement",
    "c": "deletion",
    "d": "addition",
    "e": "empty report",
}
"""The rules of EditGRPO by letter. (e) edits only an empty report; else it leaves it alone."""


_PHASES = {
    "sft": "SFT",
    "grpo": "GRPO",
    "dr_grpo": "Dr. GRPO",
    "editgrpo": "EditGRPO",
    "mrg_r1": "MRG-R1",
    "deer": "DEER",
    "ditpo": "DiTPO",
    "orapo": "OraPO",
}


def phase_name(phase: str) -> str:
    """Name a phase of the metrics log in print; other names stay."""
    return _PHASES.get(phase, phase)


def metric_name(key: str) -> MetricName:
    """The known name, or one made from the key: `reward/match` becomes "reward: match"."""
    if key in METRICS:
        return METRICS[key]
    head, slash, tail = key.partition("/")
    label = f"{head}: {tail}" if slash else key
    group = REWARD if head == "reward" else CLINICAL if "f1" in head.split("_") else REWARD
    return MetricName(label.replace("_", " "), group, higher=True if head == "reward" else None)


def in_order(keys: Iterable[str]) -> list[str]:
    """Keys by group, known ones in the order above, others after them as they came."""
    listed = list(METRICS)
    unique = list(dict.fromkeys(keys))
    rank = {key: listed.index(key) if key in METRICS else len(listed) for key in unique}
    return sorted(unique, key=lambda k: (GROUPS.index(metric_name(k).group), rank[k]))
