"""Reward terms: functions from a `RewardBatch` to one value per report.

All lie in [0, 1] but `bertscore`, `radcliq` and `crimson`, which fall below.

With `labeller=rules` and `extractor=rules` they are the embedded, offline counterparts of the
published metrics, and no result of theirs may be quoted as CheXbert, RadGraph or RaTEScore. A term
of your own is a function in a module, named as `package.module:function`: `RewardBatch -> [R]`, or
`(report, reference) -> float`, which is called for each report.

The library of texts, nltk, takes a second to import, so each term imports it when first used.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rrgclinical import Entities, to_binary
from rrgclinical.common.resolve import nearest, resolve
from rrgclinical.metrics import single_report_f1
from rrgclinical.metrics.registry import METRICS, MetricDefinition
from rrgkern import ReportEntities, entity_match, mccs
from rrgtrain.errors import UserError
from rrgtrain.rewards.batch import RewardBatch
from rrgtrain.rewards.blocks import parse_blocks
from rrgtrain.rewards.model_terms import (
    bert_score,
    crimson_score,
    fact_score,
    green_score,
    negated_radcliq,
    official_radgraph,
    official_rate,
    radgraph_at,
    radgraph_score,
    rate_score,
    sentence_sets,
    severity,
)


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


Term = Callable[[RewardBatch], np.ndarray]


def label_f1(batch: RewardBatch) -> np.ndarray:
    """Compute a report's micro-F1 over 14 labels; 0 where none is positive.

    EditGRPO's CheXbert term, MRG-R1's CE-F1 and DEER's sample-wise F1 are this one function, No
    Finding included.
    """
    return single_report_f1(batch.report_labels, batch.reference_labels)


def margin_cosine(batch: RewardBatch) -> np.ndarray:
    """MCCS: margin cosine similarity of the label vectors (MRG-R1)."""
    pred, truth = torch.as_tensor(batch.report_labels), torch.as_tensor(batch.reference_labels)
    settings = batch.settings
    value = mccs(pred, truth, margin=settings.margin, both_blank=settings.both_blank)
    return value.double().numpy()


def accuracy(batch: RewardBatch) -> np.ndarray:
    """Share of the 14 labels predicted right, positive or uncertain against the rest.

    The baseline reward of OraPO's table 4.
    """
    return (to_binary(batch.report_labels) == to_binary(batch.reference_labels)).mean(1)


def inverse_frequency(batch: RewardBatch) -> np.ndarray:
    """Recall of the positive labels, each weighing 1 / its share of the training studies.

    EditGRPO's figure 3. A study without a positive label gives 0.
    """
    found, wanted = to_binary(batch.report_labels), to_binary(batch.reference_labels)
    weight = 1.0 / batch.corpus.prevalence()
    whole = wanted @ weight
    return np.divide((found & wanted) @ weight, whole, out=np.zeros(len(whole)), where=whole > 0)


def entity_f1(batch: RewardBatch) -> np.ndarray:
    """F1 of the sets of (entity, presence), 0 when either is empty (RadGraph-F1's counting)."""
    found, wanted = _entity_sets(batch.report_entities), _entity_sets(batch.reference_entities)
    return np.array(
        [
            2.0 * len(a & b) / (len(a) + len(b)) if a and b else 0.0
            for a, b in zip(found, wanted, strict=True)
        ]
    )


def match(batch: RewardBatch) -> np.ndarray:
    """Harmonic mean of both directions' best cosines, RaTEScore's form; 0.5 without entities.

    A best match of the other presence counts `neg_weight` of its cosine.
    """
    x, y = _ragged(batch.report_entities), _ragged(batch.reference_entities)
    return entity_match(x, y, neg_weight=batch.settings.neg_weight).score.double().numpy()


def layout(batch: RewardBatch) -> np.ndarray:
    """The format reward of the whole completion (MRG-R1); see `parse_blocks`."""
    return np.array([parse_blocks(text).format for text in batch.completions], dtype=np.float64)


def _ragged(entities: Entities) -> ReportEntities:
    """The entities that take part; anatomy would match anywhere and say nothing."""
    part = entities.presence >= 0
    kept = np.concatenate([[0], np.cumsum(part)])[entities.offsets]
    return ReportEntities(
        offsets=torch.as_tensor(kept),
        presence=torch.as_tensor(entities.presence[part]),
        embedding=torch.as_tensor(entities.embedding[part]),
    )


def _entity_sets(entities: Entities) -> list[set[tuple[int, int]]]:
    pairs = list(zip(entities.key.tolist(), entities.presence.tolist(), strict=True))
    bounds = entities.offsets.tolist()
    return [{pair for pair in pairs[a:b] if pair[1] >= 0} for a, b in itertools.pairwise(bounds)]


TERMS: dict[str, Term] = {
    "label_f1": label_f1,
    "ce_f1": label_f1,
    "sample_f1": label_f1,
    "mccs": margin_cosine,
    "accuracy": accuracy,
    "inverse_frequency": inverse_frequency,
    "entity_f1": entity_f1,
    "match": match,
    "severity": severity,
    "format": layout,
    "bleu1": bleu(1),
    "bleu2": bleu(2),
    "bleu3": bleu(3),
    "bleu4": bleu(4),
    "rouge_l": rouge,
    "cider": consensus,
    "meteor": meteor_score,
    "nlg": overlap,
    "facts": fact_score,
    "green": green_score,
    "radgraph": radgraph_score,
    **{f"radgraph_{level}": radgraph_at(level) for level in ("simple", "partial", "complete")},
    "ratescore": rate_score,
    "bertscore": bert_score,
    "radcliq": negated_radcliq,
    "sdr": sentence_sets,
    "crimson": crimson_score,
    "radgraph-official": official_radgraph,
    "ratescore-official": official_rate,
}


def find_term(name: str, known: dict[str, Term]) -> Term:
    """The term of a name, a metric's own `measure`, or the function `module:function`.

    UserError for a name that is none.
    """
    if name in known:
        return known[name]
    if name in METRICS and METRICS[name].measure is not None:
        return _of_metric(METRICS[name])
    setting = f"reward.terms names {name!r}"
    choices = f"{nearest(name, known)}choose from {', '.join(sorted(known))}"
    return _as_term(resolve(name, setting, f"{setting}; {choices}"), setting)


def _of_metric(metric: MetricDefinition) -> Term:
    """Make the term of a metric, which rises as reports get better."""
    measure, sign = metric.measure, -1.0 if metric.higher is False else 1.0
    assert measure is not None
    return lambda batch: sign * np.asarray(measure(batch.reports, batch.references))


def _as_term(function: Callable[..., Any], setting: str) -> Term:
    """Wrap a function of one report and its reference; return one of a batch as it is."""
    try:
        taken = inspect.signature(function).parameters.values()
    except ValueError:  # a function of C that tells no signature
        return function
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in taken if p.default is p.empty and p.kind not in several]
    if needed == ["report", "reference"]:
        return lambda batch: np.array(
            [
                float(function(report=report, reference=reference))
                for report, reference in zip(batch.reports, batch.references, strict=True)
            ],
            dtype=np.float64,
        )
    if len(needed) > 1:
        raise UserError(
            f"{setting}, which takes ({', '.join(needed)}); wanted a function of a RewardBatch, or "
            "of the texts (report, reference)"
        )
    return function
