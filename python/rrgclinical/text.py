"""Overlap of words with a reference: BLEU, ROUGE-L, CIDEr, METEOR, each by a kept library.

BLEU and CIDEr are pycocoevalcap's, which the field reports; ROUGE-L is rouge-score's (no stemming,
F1; of ASCII text its own tokens, which of other text keep only the letters a to z); METEOR is
nltk's. Texts are composed (NFC) first, so that an accented letter is one and the same however it
was typed. Tokens are PTB-like: sentences of this project's
splitter, nltk's Treebank tokenizer, lower case, without the punctuation that pycocoevalcap drops.
pycocoevalcap itself calls a Java program for that, which is not run here (see README.md).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from nltk.stem.porter import PorterStemmer
from nltk.tokenize import NLTKWordTokenizer
from nltk.translate.meteor_score import single_meteor_score
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider_scorer import CiderScorer
from rouge_score.rouge_scorer import RougeScorer

from rrgclinical.rules.sentences import split_sentences

NGrams = Mapping[tuple[str, ...], int]

ORDER = 4
_PUNCTUATION = frozenset(
    ["''", "'", "``", "`", '"', ".", "?", "!", ",", ":", "-", "--", ";"]
)  # fmt: skip
# As the Java program writes them in lower case; pycocoevalcap drops them in upper case only.
_BRACKETS = {
    "(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-",
}  # fmt: skip
_TREEBANK = NLTKWordTokenizer()
_STEMMER = PorterStemmer()
_ASCII_WORD = re.compile("[a-z0-9]+")
_LETTERS_NUMBERS_MARKS = frozenset("LNM")
# Han and kana are written without spaces: each character counts as a word.
_UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")


class _Words:
    """A tokenizer for rouge-score: its own words in ASCII text, Unicode's in any other."""

    def tokenize(self, text: str) -> list[str]:
        lowered = text.lower()
        if lowered.isascii():
            return _ASCII_WORD.findall(lowered)
        kept = (
            char if unicodedata.category(char)[0] in _LETTERS_NUMBERS_MARKS else " "
            for char in unicodedata.normalize("NFC", lowered)
        )
        return _UNSPACED.sub(r" \1 ", "".join(kept)).split()


_ROUGE = RougeScorer(["rougeL"], tokenizer=_Words())


@lru_cache(maxsize=50_000)
def tokens(report: str) -> tuple[str, ...]:
    """Lower-cased PTB-like tokens without punctuation."""
    report = unicodedata.normalize("NFC", report)
    words: list[str] = []
    for start, end in split_sentences(report):
        words.extend(_TREEBANK.tokenize(report[start:end]))
    # "..." and the like go with the stops.
    kept = (word for word in words if word not in _PUNCTUATION and word.strip("."))
    return tuple(_BRACKETS.get(word, word.lower()) for word in kept)


def count_ngrams(words: Sequence[str], order: int = ORDER) -> Counter[tuple[str, ...]]:
    """Count the n-grams of 1 to `order` words."""
    return Counter(
        tuple(words[i : i + n]) for n in range(1, order + 1) for i in range(len(words) - n + 1)
    )


def sentence_bleu(reports: Sequence[str], references: Sequence[str], order: int = 4) -> np.ndarray:
    """float64 `[R, order]`: BLEU-1 to BLEU-`order` of each report, pycocoevalcap's smoothing.

    A report that shares no token with its reference gets 0: the smoothing gives it a little more,
    by its length, and reports that earn nothing would seem to differ.
    """
    if not len(reports):
        return np.zeros((0, order))
    values = np.array(_bleu(reports, references, order)[1], dtype=np.float64).T
    pairs = zip(reports, references, strict=True)
    values[[set(tokens(x)).isdisjoint(tokens(y)) for x, y in pairs]] = 0.0
    return values


def rouge_l(reports: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """float64 `[R]`: ROUGE-L F1 over whole reports."""
    pairs = zip(reports, references, strict=True)
    return np.array([_ROUGE.score(y, x)["rougeL"].fmeasure for x, y in pairs], dtype=np.float64)


def cider(
    reports: Sequence[str], references: Sequence[str], counts: NGrams, documents: int
) -> np.ndarray:
    """float64 `[R]`: CIDEr-D of each report, in [0, 10].

    counts, documents: in how many of how many reports of a corpus each n-gram occurs; the corpus
    is explicit, so a report's value does not depend on what else is in the batch. Where it is the
    references themselves, this is pycocoevalcap's own CIDEr.
    """
    if not len(reports):
        return np.zeros(0)
    scorer = _CorpusCider(counts, documents)
    for report, reference in zip(reports, references, strict=True):
        scorer += (" ".join(tokens(report)), [" ".join(tokens(reference))])
    return np.array(scorer.compute_cider(), dtype=np.float64)


def meteor(reports: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """float64 `[R]`: METEOR of nltk with its exact and stem stages.

    The synonym stage needs WordNet's files and is not run, and this is not the METEOR 1.5 program
    that pycocoevalcap calls through Java: compare values of this function with each other only.
    """
    return np.array(
        [
            single_meteor_score(
                tokens(reference), tokens(report), stemmer=_STEMMER, wordnet=_NoSynonyms()
            )
            if tokens(report) and tokens(reference)
            else 0.0
            for report, reference in zip(reports, references, strict=True)
        ],
        dtype=np.float64,
    )


def text_report(reports: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """bleu1..bleu4 (of the corpus), rouge_l, meteor and cider (means) of R >= 1 reports.

    CIDEr's document frequencies are those of `references`. Raises ValueError for no report.
    """
    if not len(reports):
        raise ValueError("texts of 0 reports; wanted at least one")
    counts: Counter[tuple[str, ...]] = Counter()
    for reference in references:
        counts.update(count_ngrams(tokens(reference)).keys())
    corpus = _bleu(reports, references, ORDER)[0]
    return {
        **{f"bleu{n}": float(value) for n, value in enumerate(corpus, 1)},
        "rouge_l": float(rouge_l(reports, references).mean()),
        "meteor": float(meteor(reports, references).mean()),
        "cider": float(cider(reports, references, counts, len(references)).mean()),
    }


def _bleu(
    reports: Sequence[str], references: Sequence[str], order: int
) -> tuple[list[float], list[list[float]]]:
    scorer = BleuScorer(n=order)
    for report, reference in zip(reports, references, strict=True):
        scorer += (" ".join(tokens(report)), [" ".join(tokens(reference))])
    return scorer.compute_score(option="closest", verbose=0)


class _CorpusCider(CiderScorer):
    """pycocoevalcap's scorer with document frequencies of a corpus instead of the batch."""

    def __init__(self, counts: NGrams, documents: int) -> None:
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


class _NoSynonyms:
    """A WordNet that knows no word."""

    def synsets(self, word: str) -> list:
        return []
