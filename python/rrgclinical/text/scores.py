"""Word metrics of a report, and of a corpus as the field's tables print them.

Of a report, for rewards: BLEU and CIDEr are as pycocoevalcap has them, the field's; ROUGE-L is
rouge-score's (no stemming, F1; of ASCII text its own tokens, which of other text keep only the
letters a to z); METEOR is the program 1.5 that pycocoevalcap runs through Java. The other words are
PTB-like, made without Java (`rrgclinical.text.tokens`).

Several references per report: BLEU takes the closest length, ROUGE-L the best precision and the
best recall (`rouge_l`) or the best F1 (`rouge_l_f1`), CIDEr-D the mean, METEOR the closest
reference.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rrgclinical.common.arguments import check_pairs, check_reports
from rrgclinical.common.errors import UserError
from rrgclinical.metrics import Part, Scores, mean_scores
from rrgclinical.text import java
from rrgclinical.text.statistics import Corpus, bleu_of, length_penalty, meteor_of
from rrgclinical.text.tokenizations import Tokenization, build_tokenization
from rrgclinical.text.tokens import ORDER, common_subsequence, count_ngrams, tokens

NGrams = Mapping[tuple[str, ...], int]

_ASCII_WORD = re.compile("[a-z0-9]+")
_LETTERS_NUMBERS_MARKS = frozenset("LNM")
# Han and kana are written without spaces: each character counts as a word.
_UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")


def sentence_bleu(reports: Sequence[str], references: Sequence[str], order: int = 4) -> np.ndarray:
    """float64 `[R, order]`: BLEU-1 to BLEU-`order`, 4 at most, with pycocoevalcap's smoothing.

    A report that shares no token with its reference gets 0: the smoothing gives it a little more,
    by its length, and reports that earn nothing would seem to differ.
    """
    own, other = ([tokens(text) for text in s] for s in check_pairs(reports, references))
    counts = Corpus(own, other, np.arange(len(own))).bleu()
    values = np.stack([*bleu_of(counts).values()][:order], axis=1)
    values[counts[:, 2 + ORDER] == 0] = 0.0
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

    def weighed(text: str) -> list[dict[tuple[str, ...], float]]:
        orders: list[dict[tuple[str, ...], float]] = [{} for _ in range(ORDER)]
        for gram, count in count_ngrams(tokens(text)).items():
            rarity = math.log(documents / max(counts.get(gram, 0), 1))
            orders[len(gram) - 1][gram] = count * rarity
        return orders

    def similarity(report: str, reference: str) -> float:
        total = 0.0
        for own, other in zip(weights[report], weights[reference], strict=True):
            norm = math.hypot(*own.values()) * math.hypot(*other.values())
            common = sum(min(own[gram], other[gram]) * other[gram] for gram in other if gram in own)
            total += common / norm if norm else 0.0
        return float(total * length_penalty(len(tokens(report)), len(tokens(reference))))

    pairs = [*zip(*check_pairs(reports, references), strict=True)]
    weights = {text: weighed(text) for text in {*reports, *references}}  # members share theirs
    return np.array([similarity(*pair) for pair in pairs], dtype=np.float64)


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


@dataclass(frozen=True)
class TextScores(Scores):
    """Word metrics of R reports, called with weights as any `rrgclinical.metrics.Scores`.

    `bleu_1` to `bleu_4` (of the corpus), `rouge_l` (pycocoevalcap's, beta 1.2: the papers'),
    `rouge_l_f1` (rouge-score's F1, on its own words), `cider` (CIDEr-D, 0 to 10) and `meteor` (of
    the corpus). CIDEr's document frequencies stay those of all references.
    """

    tokenization: str
    """Names the words that every metric but `rouge_l_f1` compares."""
    missing: Mapping[str, str]
    """Metrics that cannot be had here, each with the reason."""
    each: Mapping[str, np.ndarray]
    """float64 `[R]` by name: values of single reports, of the metrics that are means of them."""


def text_scores(
    reports: Sequence[str],
    references: Sequence[str | Sequence[str]],
    *,
    tokenization: str | Tokenization = "ptb",
    meteor: bool = True,
) -> TextScores:
    """Make the word metrics of R >= 1 reports as functions of report weights.

    Args:
        reports: predictions.
        references: one text per report, or several.
        tokenization: a name for `build_tokenization`, or what it builds.
        meteor: run METEOR 1.5 where Java is: seconds, and 2 GB of memory at most. Where it is not
            run or fails, `missing` says why and there is no value.

    Raises:
        TypeError: a report or a reference that is no str.
        ValueError: no report, differing lengths, or a report without reference.
        UserError: a tokenization that is unknown or cannot run here.
    """
    reports = check_reports(reports)
    if isinstance(references, (str, bytes)):
        check_reports(references, "references")  # which refuses it
    choices = [
        check_reports([texts] if isinstance(texts, str) else texts, f"references[{index}]")
        for index, texts in enumerate(references)
    ]
    _check(reports, choices)
    if isinstance(tokenization, str):
        tokenization = build_tokenization(tokenization)
    owner = np.repeat(np.arange(len(choices)), [len(texts) for texts in choices])
    flat = [text for texts in choices for text in texts]
    try:
        words = tokenization.reports(reports), tokenization.references(flat)
    except java.JavaError as error:
        raise UserError(f"tokenization {tokenization.name}: {error}") from error
    corpus = Corpus(*words, owner)
    best_f1 = np.zeros(len(reports))
    np.maximum.at(best_f1, owner, rouge_l([reports[i] for i in owner.tolist()], flat))
    each = {"rouge_l": corpus.rouge_l(), "rouge_l_f1": best_f1, "cider": corpus.cider()}
    missing: dict[str, str] = {}
    parts = [*mean_scores(each).parts, Part("bleu", corpus.bleu(), bleu_of, corner=True)]
    if not meteor:
        missing["meteor"] = "METEOR was not asked for"
    else:
        try:
            parts.append(
                Part("meteor", meteor_statistics(corpus), lambda sums: {"meteor": meteor_of(sums)})
            )
        except java.JavaError as error:
            missing["meteor"] = str(error)
    return TextScores(tuple(parts), tokenization.name, missing, each)


def meteor_statistics(corpus: Corpus) -> np.ndarray:
    """Compute METEOR's statistics, float64 `[R, 23]`; raises `java.JavaError`."""
    grouped: list[list[tuple[str, ...]]] = [[] for _ in corpus.reports]
    for owner, reference in zip(corpus.owner, corpus.references, strict=True):
        grouped[owner].append(reference)
    return java.meteor_statistics(corpus.reports, grouped)


def _check(reports: Sequence[str], choices: Sequence[Sequence[str]]) -> None:
    if len(reports) != len(choices):
        raise ValueError(f"{len(reports)} reports and references of {len(choices)}; wanted as many")
    if not len(reports):
        raise ValueError("texts of 0 reports; wanted at least one")
    for index, texts in enumerate(choices):
        if not texts:
            raise ValueError(f"report {index} has no reference; wanted one or more")
