"""Compare what implementations make of one metric: `rrgtrain eval --compare-implementations`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np

from rrgclinical.common.errors import UserError, cause_line
from rrgclinical.common.table import aligned
from rrgclinical.labels import to_binary
from rrgclinical.metrics import label_report, values
from rrgclinical.scorecard.card import SystemReading
from rrgclinical.scorecard.pairs import Pairs
from rrgclinical.text import build_tokenization, text_scores

OURS = "rrgclinical"
PUBLISHED = (
    "Rows of papers: BLEU, METEOR, CIDEr and ROUGE-L of r2gen words (R2Gen and what came after it)",
    "or of ptb words (captioning); RadEval's BLEU is of space words, its ROUGE-L F1 has a stemmer;",
    "F1 has zero_division=0; RadGraph-F1 is mostly partial. sacrebleu prints BLEU times 100.",
)


@dataclass(frozen=True)
class Scored:
    """R reports of a system beside their references, one or more each.

    pred, truth: int8 [R, 14] class ids. cleaning: R2Gen's data set; meteor: run METEOR's program.
    """

    reports: Sequence[str]
    references: Sequence[Sequence[str]]
    pred: np.ndarray
    truth: np.ndarray
    cleaning: str = "mimic_cxr"
    meteor: bool = True


Row = tuple[str, str, float]
"""Metric, variant, and value."""


def _ours(scored: Scored) -> Iterator[Row]:
    for name in ("r2gen", "ptb", "space"):
        words = build_tokenization(name, dataset=scored.cleaning)
        texts = scored.reports, scored.references
        meteor = scored.meteor and name != "space"  # a Java program of 2 GB, once for each
        made = values(text_scores(*texts, tokenization=words, meteor=meteor))
        shown = {"BLEU-4": "bleu_4", "ROUGE-L": "rouge_l", "CIDEr": "cider", "METEOR": "meteor"}
        yield from ((m, f"{name} words", made[key]) for m, key in shown.items() if key in made)
    yield "ROUGE-L F1", "no stemmer", made["rouge_l_f1"]
    labels = label_report(scored.pred, scored.truth)
    yield "macro F1 of 14", "an undefined ratio is 0", labels["macro_f1"]
    yield "sample F1 of 14", "an undefined ratio is 0", labels["sample_f1"]


def _sacrebleu(scored: Scored) -> Iterator[Row]:
    import sacrebleu

    most = max(map(len, scored.references))
    streams: Any = [[r[k] if k < len(r) else None for r in scored.references] for k in range(most)]
    for variant, options in (("13a", {}), ("13a, lower case", {"lowercase": True})):
        bleu = sacrebleu.corpus_bleu(list(scored.reports), streams, **options)
        yield "BLEU-4", f"corpus, {variant}", bleu.score / 100


def _nltk(scored: Scored) -> Iterator[Row]:
    from nltk.translate import bleu_score

    reports = [text.split() for text in scored.reports]
    references = [[text.split() for text in texts] for texts in scored.references]
    smooth = bleu_score.SmoothingFunction().method1
    each = [
        bleu_score.sentence_bleu(theirs, own, smoothing_function=smooth)
        for own, theirs in zip(reports, references, strict=True)
    ]
    whole = bleu_score.corpus_bleu(references, reports, smoothing_function=smooth)
    yield "BLEU-4", "corpus, split at blanks, method1", float(whole)
    yield "BLEU-4", "mean of reports, split at blanks, method1", float(np.mean(each))


def _pycocoevalcap(scored: Scored) -> Iterator[Row]:
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    reports = {r: [text] for r, text in enumerate(scored.reports)}
    references = {r: [*texts] for r, texts in enumerate(scored.references)}
    yield "BLEU-4", "texts as they are", Bleu(4).compute_score(references, reports, verbose=0)[0][3]
    for metric, scorer in (("ROUGE-L", Rouge()), ("CIDEr", Cider())):
        yield metric, "texts as they are", float(scorer.compute_score(references, reports)[0])


def _rouge_score(scored: Scored) -> Iterator[Row]:
    from rouge_score.rouge_scorer import RougeScorer

    for stems in (False, True):
        scorer = RougeScorer(["rougeL"], use_stemmer=stems)
        pairs = zip(scored.references, scored.reports, strict=True)
        each = [scorer.score_multi(theirs, own)["rougeL"].fmeasure for theirs, own in pairs]
        yield "ROUGE-L F1", f"{'with' if stems else 'no'} stemmer", float(np.mean(each))


def _scikit_learn(scored: Scored) -> Iterator[Row]:
    from sklearn.metrics import f1_score

    cells = to_binary(scored.truth), to_binary(scored.pred)
    for average, metric in (("macro", "macro F1 of 14"), ("samples", "sample F1 of 14")):
        for value in (0.0, 1.0, math.nan):
            made = f1_score(*cells, average=average, zero_division=value)
            yield metric, f"zero_division={value:g}", float(made)


def _radgraph(scored: Scored) -> Iterator[Row]:
    from radgraph import F1RadGraph

    if any(len(texts) > 1 for texts in scored.references):
        raise UserError("it takes one reference a report")
    scorer = F1RadGraph(reward_level="all", model_type="radgraph")
    texts = [*scored.reports], [texts[0] for texts in scored.references]
    for case, change in (("as written", str), ("lower case", str.lower)):
        hyps, refs = ([change(text) for text in side] for side in texts)
        levels = scorer(hyps=hyps, refs=refs)[0]
        for level, made in zip(("simple", "partial", "complete"), levels, strict=True):
            yield "RadGraph-F1", f"{level}, {case}", float(made)


IMPLEMENTATIONS: Mapping[str, Callable[[Scored], Iterator[Row]]] = {
    OURS: _ours,
    "sacrebleu": _sacrebleu,
    "nltk": _nltk,
    "pycocoevalcap": _pycocoevalcap,
    "rouge-score": _rouge_score,
    "scikit-learn": _scikit_learn,
    "radgraph": _radgraph,
}


def compare_implementations(
    pairs: Pairs, truth: np.ndarray, readings: Mapping[str, SystemReading], **more: Any
) -> str:
    """Write a table with a row for each metric, package and variant.

    A column is a system. truth: int8 [R, 14]; readings: of the systems, with their labels; more:
    fields of `Scored`. A package that is not installed, or fails, is said beneath, with its name
    for pip. Raises UserError where a study has no reference report.
    """
    if not all(pairs.references):
        raise UserError(
            "--compare-implementations needs a reference report for every study; leave out those "
            "without"
        )
    rows: dict[tuple[str, str], dict[str, float]] = {}
    said: dict[str, None] = {}
    for system, reports in pairs.systems.items():
        scored = Scored(reports, pairs.references, readings[system].labels, truth, **more)
        for package, rows_of in IMPLEMENTATIONS.items():
            try:
                name = package if package == OURS else f"{package} {metadata.version(package)}"
                for metric, variant, value in rows_of(scored):
                    rows.setdefault((metric, f"{name}: {variant}"), {})[system] = value
            except metadata.PackageNotFoundError:
                said[f"{package} is not installed: pip install {package}"] = None
            except Exception as error:  # whatever another package raises
                said[f"{package} gives no more: {cause_line(error)}"] = None
    metrics = [*dict.fromkeys(metric for metric, _ in rows)]
    ordered = sorted(rows.items(), key=lambda row: metrics.index(row[0][0]))
    table = [["one metric by each implementation", *pairs.systems]]
    for (metric, name), made in ordered:
        cells = [f"{made[s]:.4f}" if s in made else "-" for s in pairs.systems]
        table.append([f"{metric}, {name}", *cells])
    return "\n".join([*aligned(table), "", *said, *PUBLISHED]) + "\n"
