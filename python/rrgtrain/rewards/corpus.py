"""Statistics of the training reports that some terms need."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rrgclinical import to_binary
from rrgpolicy.ranks import ranks
from rrgtrain.errors import UserError

# What the terms of ours need; a term of one's own has it counted when it asks, on each rank.
NEEDS = {
    "inverse_frequency": "prevalence",
    "cider": "document_frequency",
    "nlg": "document_frequency",
}


class DocumentFrequency(NamedTuple):
    """Counts of the training reports.

    reports: how many were counted. counts: in how many each n-gram (n = 1..4) occurs.
    """

    reports: int
    counts: Counter[tuple[str, ...]]


class Corpus:
    """Statistics of the training studies, each computed by `count` or when a term first asks.

    label: gives the `[R, 14]` class ids of all training studies, reports or labels as the
    recipe's `reward.against` says. reports: their texts, None where a study has none.
    """

    def __init__(
        self, reports: Sequence[str | None], label: Callable[[], np.ndarray] | None = None
    ) -> None:
        self._reports, self._label = list(reports), label
        self._lock = threading.Lock()

    def count(self, terms: Iterable[str], label: Callable[[], np.ndarray]) -> None:
        """Count now what the terms named need, each rank a share; all ranks call it.

        label: as that of the constructor, on all ranks at once. Where there is nothing to count,
        the term that asks says so.
        """
        needed = {NEEDS.get(term) for term in terms}
        if "prevalence" in needed and len(labels := label()):
            with self._lock:
                self.__dict__["_prevalence"] = _share_of_positives(labels)
        texts = [report for report in self._reports if report]
        if "document_frequency" in needed and texts:
            counts: Counter[tuple[str, ...]] = Counter()
            for part in ranks.gather(_count(ranks.shard(texts))):
                counts.update(part)
            with self._lock:
                self.__dict__["_document_frequency"] = DocumentFrequency(len(texts), counts)

    def prevalence(self) -> np.ndarray:
        """float64 `[14]`: share of training studies in which each label is positive or uncertain.

        A label that never is counts as if it were in one study, so its inverse is finite.
        """
        with self._lock:
            return self._prevalence

    def document_frequency(self) -> DocumentFrequency:
        """Count all n-grams up to 4 in the training reports."""
        with self._lock:
            return self._document_frequency

    @cached_property
    def _prevalence(self) -> np.ndarray:
        labels = self._label() if self._label is not None else np.zeros((0, 14), dtype=np.int8)
        if not len(labels):
            raise UserError(
                "there are no training studies to count label frequencies in; "
                "pass them to RewardService.fit, or leave out inverse_frequency"
            )
        return _share_of_positives(labels)

    @cached_property
    def _document_frequency(self) -> DocumentFrequency:
        texts = [report for report in self._reports if report]
        if not texts:
            raise UserError(
                "there are no training reports to count n-grams in; "
                "pass them to RewardService.fit, or leave out cider and nlg"
            )
        return DocumentFrequency(len(texts), _count(texts))


def _share_of_positives(labels: np.ndarray) -> np.ndarray:
    return np.maximum(to_binary(labels).sum(0), 1) / len(labels)


def _count(texts: Sequence[str]) -> Counter[tuple[str, ...]]:
    # Imported here: nltk takes a second, and most recipes have no text term.
    from rrgclinical.text import count_ngrams, tokens

    counts: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        counts.update(count_ngrams(tokens(text)).keys())
    return counts
