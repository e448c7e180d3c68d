"""Overlap of a report's words with its reference: rewards, a value for each report.

BLEU and CIDEr are pycocoevalcap's, which the field reports; ROUGE-L is rouge-score's (no stemming,
F1; of ASCII text its own tokens, which of other text keep only the letters a to z); METEOR is the
program 1.5 that pycocoevalcap runs through Java. The other words are PTB-like, made without Java
(`rrgclinical.text.tokens`). Of a corpus see `rrgclinical.text.scores`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from rrgclinical.common.arguments import check_pairs
from rrgclinical.common.errors import UserError
from rrgclinical.text import java
from rrgclinical.text.statistics import meteor_of
from rrgclinical.text.tokens import common_subsequence, tokens

NGrams = Mapping[tuple[str, ...], int]

_ASCII_WORD = re.compile("[a-z0-9]+")
_LETTERS_NUMBERS_MARKS = frozenset("LNM")
# Han and kana are written without spaces: each character counts as a word.
_UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")


def sentence_bleu(reports: Sequence[str], references: Sequence[str], order: int = 4) -> np.ndarray:
    """float64 `[R, order]`: BLEU-1 to BLEU-`order` of each report, pycocoevalcap's smoothing.

    A report that shares no token with its reference gets 0: the smoothing gives it a little more,
    by its length, and reports that earn nothing would seem to differ.
    """
    # Here, not at the top: pycocoevalcap is 100 MB of Java programs, and nothing else needs it.
    from rrgclinical.text import coco_scorers

    reports, references = check_pairs(reports, references)
    if not reports:
        return np.zeros((0, order))
    values = np.array(coco_scorers.bleu(reports, references, order)[1], dtype=np.float64).T
    pairs = zip(reports, references, strict=True)
    values[[set(tokens(x)).isdisjoint(tokens(y)) for x, y in pairs]] = 0.0
    return values


def rouge_l(reports: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Compute ROUGE-L F1 over whole reports, rouge-score's; float64 `[R]`."""
    pairs = zip(*check_pairs(reports, references), strict=True)
    return np.array([_f1(_words(x), _words(y)) for x, y in pairs], dtype=np.float64)


def cider(
    reports: Sequence[str], references: Sequence[str], counts: NGrams, documents: int
) -> np.ndarray:
    """float64 `[R]`: CIDEr-D of each report, in [0, 10].

    counts, documents: in how many of how many reports of a corpus each n-gram occurs; the corpus
    is explicit, so a report's value does not depend on what else is in the batch. Where it is the
    references themselves, this is pycocoevalcap's own CIDEr.
    """
    from rrgclinical.text import coco_scorers

    reports, references = check_pairs(reports, references)
    if not reports:
        return np.zeros(0)
    scorer = coco_scorers.CorpusCider(counts, documents)
    for report, reference in zip(reports, references, strict=True):
        scorer += (" ".join(tokens(report)), [" ".join(tokens(reference))])
    return np.array(scorer.compute_cider(), dtype=np.float64)


def meteor(reports: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Compute METEOR 1.5 of each report, by the Java program of pycocoevalcap; float64 `[R]`.

    Raises UserError where the program cannot run, with the reason.
    """
    reports, references = check_pairs(reports, references)
    try:
        statistics = java.meteor_statistics(
            [tokens(text) for text in reports], [[tokens(text)] for text in references]
        )
    except java.JavaError as error:
        raise UserError(f"METEOR: {error}") from error
    return meteor_of(statistics)


def _words(text: str) -> list[str]:
    """rouge-score's words of ASCII text; of any other, Unicode's letters, digits and marks."""
    lowered = text.lower()
    if lowered.isascii():
        return _ASCII_WORD.findall(lowered)
    words = (
        char if unicodedata.category(char)[0] in _LETTERS_NUMBERS_MARKS else " "
        for char in unicodedata.normalize("NFC", lowered)
    )
    return _UNSPACED.sub(r" \1 ", "".join(words)).split()


def _f1(report: list[str], reference: list[str]) -> float:
    common = common_subsequence(reference, report)
    if not common:
        return 0.0
    precision, recall = common / len(report), common / len(reference)
    return 2 * precision * recall / (precision + recall)
