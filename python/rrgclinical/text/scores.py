"""Word metrics of a corpus under report weights, as the field's tables print them.

Several references per report: BLEU takes the closest length, ROUGE-L the best precision and the
best recall (`rouge_l`) or the best F1 (`rouge_l_f1`), CIDEr-D the mean, METEOR the closest
reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rrgclinical.common.arguments import check_reports
from rrgclinical.common.errors import UserError
from rrgclinical.metrics import Part, Scores, mean_scores
from rrgclinical.text import java
from rrgclinical.text.overlap import rouge_l
from rrgclinical.text.statistics import Corpus, bleu_of, meteor_of
from rrgclinical.text.tokenizations import Tokenization, build_tokenization


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
    parts = [*mean_scores(each).parts, Part("bleu", corpus.bleu(), bleu_of)]
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
