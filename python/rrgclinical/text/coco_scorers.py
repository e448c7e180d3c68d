"""pycocoevalcap's scorers of BLEU and CIDEr over this package's tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider_scorer import CiderScorer

from rrgclinical.text.tokens import ORDER, tokens


def bleu(
    reports: Sequence[str], references: Sequence[str], order: int
) -> tuple[list[float], list[list[float]]]:
    """Score the corpus, and each report: lists of BLEU-1 to BLEU-`order`."""
    scorer = BleuScorer(n=order)
    for report, reference in zip(reports, references, strict=True):
        scorer += (" ".join(tokens(report)), [" ".join(tokens(reference))])
    return scorer.compute_score(option="closest", verbose=0)


class CorpusCider(CiderScorer):
    """pycocoevalcap's scorer with document frequencies of a corpus instead of the batch."""

    def __init__(self, counts: Mapping[tuple[str, ...], int], documents: int) -> None:
        super().__init__(n=ORDER)
        # A Counter answers 0 for what it lacks; a large corpus is not copied for every batch.
        self.document_frequency = counts if isinstance(counts, Counter) else Counter(counts)
        self._documents = math.log(documents)

    @property
    def ref_len(self) -> float:
        """Logarithm of the number of documents."""
        return self._documents

    @ref_len.setter
    def ref_len(self, value: float | None) -> None:
        """The scorer would put the size of the batch here."""
