"""Measure jobs, and keep measures by unit so that jobs are compared pairwise.

Every measure is a mean over M parts of a ratio of sums over U units (studies, or steps): micro-F1
is Σ 2·TP / Σ (2·TP + FP + FN) over studies, macro-F1 the mean of that over labels, a plain mean
Σ x / Σ 1. So one resampling of the units serves them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rrgclinical.labels import NO_FINDING, OBSERVATIONS, to_binary
from rrgtrain.train.evaluate import Evaluation


@dataclass(frozen=True)
class Ratios:
    """`top` and `bottom` are float64 `[U, M]`; 0/0 counts as 0, as in scikit-learn."""

    top: np.ndarray
    bottom: np.ndarray

    def __post_init__(self) -> None:
        if self.top.ndim != 2 or self.top.shape != self.bottom.shape or not self.top.size:
            raise ValueError(
                f"ratios of {list(self.top.shape)} over {list(self.bottom.shape)}; "
                "wanted the same [units, parts], neither of them 0"
            )

    @property
    def units(self) -> int:
        return len(self.top)

    def value(self, weights: np.ndarray | None = None) -> np.ndarray:
        """float64 `[B]` under unit weights `[B, U]`; without weights `[1]`."""
        weights = np.ones((1, self.units)) if weights is None else weights
        top, bottom = weights @ self.top, weights @ self.bottom
        return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0).mean(1)

    def as_json(self) -> dict[str, Any]:
        """Lists of lists."""
        return {"top": self.top.tolist(), "bottom": self.bottom.tolist()}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Ratios:
        """Read the output of `as_json`."""
        return cls(*(np.asarray(found[k], dtype=np.float64) for k in ("top", "bottom")))


def mean_of(values: Sequence[float] | np.ndarray, counted: np.ndarray | None = None) -> Ratios:
    """The mean of one value a unit; `counted` 0 or 1 leaves units out."""
    top = np.asarray(values, dtype=np.float64)
    bottom = np.ones_like(top) if counted is None else np.asarray(counted, dtype=np.float64)
    return Ratios((top * bottom)[:, None], bottom[:, None])


def label_measures(
    predicted: np.ndarray, truth: np.ndarray, rare: Sequence[int] = ()
) -> dict[str, Ratios]:
    """micro, macro, sample-wise and `rare` F1, precision and recall of class ids `[R, 14]`.

    Positive is positive or uncertain. `rare` are the columns of rare_f1, which is left out
    without any.
    """
    p, t = (to_binary(labels).astype(np.float64) for labels in (predicted, truth))
    hit = p * t
    of_report = 2 * hit.sum(1), p.sum(1) + t.sum(1)
    each = np.divide(*of_report, out=np.zeros(len(p)), where=of_report[1] > 0)
    found = {
        "micro_f1": Ratios(of_report[0][:, None], of_report[1][:, None]),
        "macro_f1": Ratios(2 * hit, p + t),
        "sample_f1": mean_of(each),
        "micro_precision": Ratios(hit.sum(1)[:, None], p.sum(1)[:, None]),
        "micro_recall": Ratios(hit.sum(1)[:, None], t.sum(1)[:, None]),
    }
    if len(rare):
        columns = list(rare)
        found["rare_f1"] = Ratios(2 * hit[:, columns], (p + t)[:, columns])
    return found


def rare_columns(labels: np.ndarray) -> list[int]:
    """The rarer third of the findings that occur in `labels` [S, 14], rarest first."""
    counts = to_binary(labels).sum(0)
    present = [c for c in range(len(OBSERVATIONS)) if c != NO_FINDING and counts[c]]
    return sorted(present, key=lambda c: (counts[c], c))[: max(1, len(present) // 3)]


def of_evaluation(
    evaluation: Evaluation, reports: Sequence[str], rare: Sequence[int]
) -> dict[str, Ratios]:
    """Every measure of the reports that a policy wrote for the held-out studies.

    `reports` is the scored text of each. BLEU-4 is the mean over reports, not that of the corpus.
    """
    # Imported here: nltk takes a second.
    from rrgclinical.text import sentence_bleu

    references = [study.report or "" for study in evaluation.studies]
    return {
        **label_measures(evaluation.predicted, evaluation.truth, rare),
        "bleu4": mean_of(sentence_bleu(reports, references, 4)[:, 3]),
        "reward": mean_of(evaluation.rewards["total"]),
        "words": mean_of([len(report.split()) for report in reports]),
    }


def draw_measures(rewards: np.ndarray, draws: Mapping[str, np.ndarray]) -> dict[str, Ratios]:
    """Measure draws as `<what>/<draw>` (DEER, table 7).

    Takes the rewards `[S, K]` of K reports a study, and indices a draw.

    zero_variance is the share of studies whose reports all earn the same, unique_rewards their
    number of distinct rewards, reward_std the population standard deviation.
    """
    columns = {
        "zero_variance": (rewards == rewards[:, :1]).all(1),
        "unique_rewards": [len(set(row)) for row in rewards.tolist()],
        "reward_std": rewards.std(1),
    }
    found: dict[str, Ratios] = {}
    for draw, chosen in draws.items():
        counted = np.zeros(len(rewards))
        counted[chosen] = 1.0
        found |= {f"{name}/{draw}": mean_of(own, counted) for name, own in columns.items()}
    return found
