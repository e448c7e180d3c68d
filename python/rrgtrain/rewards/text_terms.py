"""Reward terms that compare words with the reference report.

The texts' library, nltk, takes a second to import, so each term imports it when first used.
"""

from __future__ import annotations

import numpy as np

from rrgtrain.rewards.batch import RewardBatch


def bleu(order: int):  # noqa: ANN201 - a term, as in `rewards.terms`
    """The term BLEU-`order`: sentence level, pycocoevalcap, lower-cased PTB-like tokens (DEER)."""

    def term(batch: RewardBatch) -> np.ndarray:
        from rrgclinical.text import sentence_bleu

        return sentence_bleu(batch.reports, batch.references, order)[:, order - 1]

    return term


def rouge(batch: RewardBatch) -> np.ndarray:
    """ROUGE-L F1 of each report, by rouge-score."""
    from rrgclinical.text import rouge_l

    return rouge_l(batch.reports, batch.references)


def consensus(batch: RewardBatch) -> np.ndarray:
    """CIDEr-D / 10, with the document frequencies of the training reports."""
    from rrgclinical.text import cider

    corpus = batch.corpus.document_frequency()
    return cider(batch.reports, batch.references, corpus.counts, corpus.reports) / 10.0


def meteor_score(batch: RewardBatch) -> np.ndarray:
    """METEOR 1.5 of each report, by a Java program that takes seconds to start."""
    from rrgclinical.text import meteor

    return meteor(batch.reports, batch.references)


def overlap(batch: RewardBatch) -> np.ndarray:
    """Mean of BLEU-4, ROUGE-L and CIDEr / 10: the NLG reward of MRG-R1's table II.

    The paper names the three and no weights.
    """
    return (bleu(4)(batch) + rouge(batch) + consensus(batch)) / 3.0
