"""Word statistics of all reports against their references, in arrays.

One row per n-gram that a text holds. Corpus BLEU, CIDEr-D and ROUGE-L follow from these as in
pycocoevalcap (bleu_scorer.py, cider_scorer.py, rouge.py), with several references per report:
BLEU clips by the largest count of any reference and takes the closest length, the shorter of two;
CIDEr-D is the mean over references; ROUGE-L takes the best precision and the best recall, which
can be of two references.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from rrgclinical.text.tokens import ORDER, common_subsequence

_SIGMA = 6.0
_BETA = 1.2
# pycocoevalcap's: a precision without n-grams is 0, and none is divided by 0.
_TINY, _SMALL = 1e-15, 1e-9

Words = Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class Corpus:
    """R reports and N >= R references as words.

    `owner` `[N]` is the report of each reference.
    """

    reports: Words
    references: Words
    owner: np.ndarray

    def bleu(self) -> np.ndarray:
        """Count what BLEU is made of; float64 `[R, 10]`.

        Words, closest length of a reference, n-grams and matches of 1 to 4 words. Sums over
        reports, weighted or not, give BLEU by `bleu_of`.
        """
        size = len(self.reports)
        own, others = _lengths(self.reports), _lengths(self.references)
        # The closest, then the shorter: sorted so, the first of each owner is the one.
        order = np.lexsort((others, np.abs(others - own[self.owner]), self.owner))
        closest = others[order][np.searchsorted(self.owner[order], np.arange(size))]
        statistics = np.zeros((size, 2 + 2 * ORDER))
        statistics[:, 0], statistics[:, 1] = own, closest
        for column, grams in enumerate(self._grams, 2):
            most = np.zeros(len(grams.own_text))
            np.maximum.at(most, grams.own_shared, grams.count[grams.shared])
            clipped = np.minimum(most, grams.own_count)
            statistics[:, column] = np.maximum(own - (column - 2), 0)
            statistics[:, column + ORDER] = _sums(grams.own_text, clipped, size)
        return statistics

    def cider(self) -> np.ndarray:
        """Compute CIDEr-D with document frequencies of the references; float64 `[R]`, 0 to 10."""
        size = len(self.reports)
        each = np.zeros(len(self.references))
        for grams in self._grams:
            # An n-gram counts once per report, in how many of its references it may be.
            in_reports = np.unique(self.owner[grams.text] * grams.total + grams.gram)
            frequency = np.bincount(in_reports % grams.total, minlength=grams.total)
            rarity = np.log(float(size)) - np.log(np.maximum(frequency, 1.0))
            own, other = grams.own_count * rarity[grams.own_gram], grams.count * rarity[grams.gram]
            own_norm = np.sqrt(_sums(grams.own_text, own**2, size))[self.owner]
            norm = np.sqrt(_sums(grams.text, other**2, len(each))) * own_norm
            common = other[grams.shared]
            common = np.minimum(own[grams.own_shared], common) * common
            product = _sums(grams.text[grams.shared], common, len(each))
            each += np.divide(product, norm, out=np.zeros_like(product), where=norm != 0)
        each *= length_penalty(_lengths(self.reports)[self.owner], _lengths(self.references))
        return _sums(self.owner, each, size) / np.bincount(self.owner, minlength=size)

    def rouge_l(self) -> np.ndarray:
        """Compute ROUGE-L (beta 1.2) of the best precision and recall; float64 `[R]`."""
        precision, recall = np.zeros(len(self.reports)), np.zeros(len(self.reports))
        for owner, reference in zip(self.owner, self.references, strict=True):
            # A text without words is one empty word there: two of them agree.
            one, other = self.reports[owner] or ("",), reference or ("",)
            common = common_subsequence(one, other)
            precision[owner] = max(precision[owner], common / len(one))
            recall[owner] = max(recall[owner], common / len(other))
        below = recall + _BETA**2 * precision
        above = (1 + _BETA**2) * precision * recall
        return np.divide(above, below, out=np.zeros_like(above), where=below != 0)

    @cached_property
    def _grams(self) -> list[_Grams]:
        """Of 1 to 4 words."""
        size = len(self.reports)
        numbers: dict[str, int] = {}
        texts = [*self.reports, *self.references]
        flat = [numbers.setdefault(word, len(numbers)) for words in texts for word in words]
        word = np.array(flat, dtype=np.int64)
        text = np.repeat(np.arange(len(texts)), _lengths(texts).astype(np.int64))
        gram, orders = word, []
        for n in range(1, ORDER + 1):
            if n > 1:
                # The gram of n words at i is that of n - 1 words at i and the word at its end.
                inside = text[: max(len(word) - n + 1, 0)] == text[n - 1 :]
                joined = np.where(inside, gram[:-1] * len(numbers) + word[n - 1 :], -1)
                joined[gram[:-1] < 0] = -1
                gram = np.unique(joined, return_inverse=True)[1] - (joined.min(initial=0) < 0)
            orders.append(_Grams.of(text[: len(gram)], gram, size, self.owner))
        return orders


@dataclass(frozen=True)
class _Grams:
    """Distinct n-grams: of reports (`own_`) and of references, with where they match."""

    total: int  # more than any gram's number
    own_text: np.ndarray
    own_gram: np.ndarray
    own_count: np.ndarray
    text: np.ndarray
    gram: np.ndarray
    count: np.ndarray
    own_shared: np.ndarray  # rows of reports, and beneath the row of the reference that matches
    shared: np.ndarray

    @classmethod
    def of(cls, text: np.ndarray, gram: np.ndarray, size: int, owner: np.ndarray) -> _Grams:
        """From the text and the gram at each position; -1 where none begins."""
        total = int(gram.max(initial=0)) + 1
        valid = gram >= 0
        keys, count = np.unique(text[valid] * total + gram[valid], return_counts=True)
        first = int(np.searchsorted(keys, size * total))
        own, other = keys[:first], keys[first:]
        at = other // total - size
        owner_keys = owner[at] * total + other % total
        shared = np.flatnonzero(np.isin(owner_keys, own))
        return cls(
            total=total,
            own_text=own // total,
            own_gram=own % total,
            own_count=count[:first],
            text=at,
            gram=other % total,
            count=count[first:],
            own_shared=np.searchsorted(own, owner_keys[shared]),
            shared=shared,
        )


def length_penalty(words: ArrayLike, reference: ArrayLike) -> np.ndarray:
    """Weigh cosines summed over orders into CIDEr-D: by pairs of words beyond the reference's."""
    apart = np.maximum(np.subtract(words, 1), 0) - np.maximum(np.subtract(reference, 1), 0)
    return 10.0 / ORDER * np.exp(-(apart**2) / (2 * _SIGMA**2))


def bleu_of(sums: np.ndarray) -> dict[str, np.ndarray]:
    """Compute BLEU-1 to BLEU-4 of summed statistics `[B, 10]`; float64 `[B]` each."""
    guesses, matches = sums[:, 2 : 2 + ORDER], sums[:, 2 + ORDER :]
    product = np.cumprod((matches + _TINY) / (guesses + _SMALL), axis=1)
    ratio = (sums[:, 0] + _TINY) / (sums[:, 1] + _SMALL)
    brevity = np.where(ratio < 1, np.exp(1 - 1 / np.minimum(ratio, 1.0)), 1.0)
    return {f"bleu_{n}": product[:, n - 1] ** (1 / n) * brevity for n in range(1, ORDER + 1)}


def meteor_of(sums: np.ndarray) -> np.ndarray:
    """Compute METEOR 1.5 (English) of summed statistics `[B, 23]`; float64 `[B]`.

    The parameters are those of its ranking task, the program's default (Denkowski and Lavie,
    2014): alpha 0.85, beta 0.2, gamma 0.6, delta 0.75, and 1, 0.6, 0.8, 0.6 for exact, stem,
    synonym and paraphrase matches. Columns: words and function words of both, then for each kind
    of match content and function words of both, then chunks and matched words. A perfect pair has
    no chunk in them (`meteor_statistics`), so that a corpus of perfect pairs has 1.
    """
    alpha, beta, gamma, delta = 0.85, 0.2, 0.6, 0.75
    kinds = sums[:, 4:20].reshape(-1, 4, 4)
    matches = np.einsum("bkc,k->bc", kinds, np.array([1.0, 0.6, 0.8, 0.6]))
    sides = []
    for side in (0, 1):
        matched = delta * matches[:, side] + (1 - delta) * matches[:, 2 + side]
        function = sums[:, 2 + side]
        length = delta * (sums[:, side] - function) + (1 - delta) * function
        sides.append(_quotient(matched, length))
    precision, recall = sides
    mean = _quotient(precision * recall, alpha * precision + (1 - alpha) * recall)
    chunks, matched = sums[:, 20], (sums[:, 21] + sums[:, 22]) / 2
    return mean * (1 - gamma * _quotient(chunks, matched) ** beta)


def _sums(index: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    # bincount of nothing is of integers
    return np.bincount(index, values, size).astype(np.float64)


def _quotient(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.zeros(len(above)), where=below != 0)


def _lengths(texts: Words) -> np.ndarray:
    return np.array([len(words) for words in texts], dtype=np.float64)
