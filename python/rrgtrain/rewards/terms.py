"""Reward terms: functions from a `RewardBatch` to one value per report.

All lie in [0, 1] but `bertscore`, `radcliq` and `crimson`, which fall below. nltk takes a second to
import, so a term does so when it is first used.

With `labeller=rules` and `extractor=rules` they are embedded, offline counterparts of published
metrics, and no result of theirs may be quoted as CheXbert, RadGraph or RaTEScore. A term of your
own, `package.module:function`, is `RewardBatch -> [R]`, or `(report, reference) -> float`.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from rrgclinical import Entities, to_binary
from rrgclinical.common.resolve import nearest, resolve
from rrgclinical.grounding import GROUNDING, grounding, read_grounded
from rrgclinical.metrics import single_report_f1
from rrgclinical.metrics.registry import METRICS, MetricDefinition
from rrgkern import ReportEntities, entity_match, mccs
from rrgtrain.errors import UserError
from rrgtrain.rewards.batch import RewardBatch, parse_blocks


def fact_score(batch: RewardBatch) -> np.ndarray:
    """FactS: F_beta of the labels that the report's facts entail (OraPO).

    By rules without `reward.options.facts`; with it by the model behind its `endpoint`. Facts,
    verdicts and the class ids that they are held against are kept as notes.
    """
    from rrgclinical.facts import fact_scores

    reader = batch.open("facts")
    readings = batch.once("facts read", lambda: reader.read(batch.reports))
    truth = batch.reference_labels
    batch.notes["facts"] = [
        {**reading.as_note(), "truth": row.tolist()}
        for reading, row in zip(readings, truth, strict=True)
    ]
    return fact_scores(readings, truth, beta=batch.settings.fact_beta)


def green_score(batch: RewardBatch) -> np.ndarray:
    """GREEN by the model behind `reward.options.green.endpoint`; its answers are kept as notes."""
    judge = batch.open("green")
    judged = batch.once("green read", lambda: judge.judge(batch.reports, batch.references))
    batch.notes["green"] = [
        {"matched": j.matched, "errors": list(j.errors), "text": j.text}
        if j.errors
        else {"unreadable": j.text}
        for j in judged
    ]
    return np.array([j.score for j in judged], dtype=np.float64)


def radgraph_score(batch: RewardBatch, level: str = "") -> np.ndarray:
    """RadGraph-F1 at a level, `reward.radgraph_level` by default; 0 without words or entities."""
    from rrgclinical.radgraph import radgraph_f1

    reader, settings = batch.open("radgraph"), batch.settings
    wanted = batch.of_references(
        "reference graphs", lambda other: reader.annotate(other.references, keep=True)
    )
    found = batch.once("graphs", lambda: reader.annotate(batch.reports))
    level = level or settings.radgraph_level
    rows = zip(batch.reports, batch.references, found, wanted, strict=True)
    return np.array(
        [
            getattr(radgraph_f1(x, y, case=settings.radgraph_case), level)
            if report and reference
            else 0.0
            for report, reference, x, y in rows
        ],
        dtype=np.float64,
    )


def rate_score(batch: RewardBatch) -> np.ndarray:
    """RaTEScore with the weights of `reward.rate_affinity` and `reward.neg_weight`.

    0.5 where a report or its reference has no entity. neg_weight is 0.3612 in the package's 0.5.0
    (EditGRPO) and 0.8717 in its 0.6.0 with the long weights.
    """
    from rrgclinical.ratescore import affinity

    settings = batch.settings
    weights = affinity(settings.rate_affinity)
    pair = batch.entities("ratescore")
    x, y = (_rows(e.offsets, e.presence, e.embedding, e.kind) for e in pair)
    found = entity_match(x, y, affinity=weights, neg_weight=settings.neg_weight)
    return found.score.double().numpy()


def official_radgraph(batch: RewardBatch) -> np.ndarray:
    """The term `radgraph` by the radgraph package itself, in its own process."""
    settings = batch.settings
    # the package stops at a report of white space alone
    reports, references = (
        [text if text.strip() else "" for text in texts]
        for texts in (batch.reports, batch.references)
    )
    found = batch.open("radgraph-official").f1(reports, references)
    return np.array([getattr(one, settings.radgraph_level) for one in found], dtype=np.float64)


def official_rate(batch: RewardBatch) -> np.ndarray:
    """The term `ratescore` by the RaTEScore package itself, in its own process."""
    return batch.open("ratescore-official").score(batch.reports, batch.references)


def _rows(*arrays: np.ndarray) -> ReportEntities:
    """Make the kernels' entities of offsets, presence, embedding and perhaps kind."""
    return ReportEntities(*map(torch.as_tensor, arrays))


def severity(batch: RewardBatch) -> np.ndarray:
    """Errors in the order of what they would mean for the patient (`rrgclinical.severity`).

    Read by rules whatever `reward.extractor` says; weights are those of
    `reward.options.severity.table`, with `.context` for the study's age and indication. What was
    right, missed and invented, and what it cost, is kept as notes.
    """
    reader = batch.open("severity")
    references = batch.of_references(
        "severity of references", lambda other: reader.read(other.references, keep=True)
    )
    indications = [study.indication for study in batch.studies]
    each = reader.each(batch.reports, batch.references, references, indications)
    if not batch.noted:
        return batch.once("severity read", lambda: np.array([one.score for one in each]))
    judged = batch.once("severity read", lambda: [*each])
    tables = map(reader.table_of, indications)
    batch.notes["severity"] = [j.explain(of) for j, of in zip(judged, tables, strict=True)]
    return np.array([one.score for one in judged], dtype=np.float64)


def bert_score(batch: RewardBatch) -> np.ndarray:
    """BERTScore F1 of distilroberta-base, rescaled: about 0 for unrelated texts, and below."""
    reader = batch.open("bertscore")
    batch.of_references("reference states", lambda other: reader.read(other.references))
    return reader.f1(batch.reports, batch.references)


def negated_radcliq(batch: RewardBatch) -> np.ndarray:
    """RadCliQ-v1 with its sign turned: it estimates errors, and a reward rises as they fall.

    By RadGraph, CheXbert and BERTScore; not in [0, 1], as a linear model of the three.
    """
    reader = batch.open("radcliq")
    batch.of_references("references for radcliq", lambda other: reader.read(other.references))
    return -reader.score(batch.reports, batch.references)


def crimson_score(batch: RewardBatch) -> np.ndarray:
    """CRIMSON by the model behind `reward.options.crimson.endpoint`, in (-1, 1].

    The weights that each value is made of are kept as notes.
    """
    judge = batch.open("crimson")
    judged = batch.once("crimson read", lambda: judge.judge(batch.reports, batch.references))
    batch.notes["crimson"] = [
        {"unreadable": one.unreadable} if one.unreadable else one._asdict() for one in judged
    ]
    return np.array([one.score for one in judged], dtype=np.float64)


def sentence_sets(batch: RewardBatch) -> np.ndarray:
    """Compare the sets of sentences by best cosines, both ways (SDR, arXiv 2606.00440).

    The harmonic mean of both directions' mean best cosine, never below 0; 0 where either report has
    no sentence, or an empty report would earn by saying nothing.
    """
    reader = batch.open("sdr")
    references = batch.of_references(
        "reference sentences", lambda other: reader.read(other.references, keep=True)
    )
    reports = batch.once("sentences", lambda: reader.read(batch.reports))
    score = entity_match(_present(reports), _present(references)).score.double().numpy()
    written = np.minimum(np.diff(reports.offsets), np.diff(references.offsets)) > 0
    return np.where(written, np.maximum(score, 0.0), 0.0)


def _present(sets: Any) -> ReportEntities:
    return _rows(sets.offsets, np.ones(len(sets.vectors), dtype=np.int8), sets.vectors)


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


def grounded(batch: RewardBatch, name: str) -> np.ndarray:
    """Compare where findings lie, always as rules read them (`rrgclinical.grounding`)."""
    extract = batch.open("rules").extract
    references = batch.of_references(
        "boxes of references", lambda b: read_grounded(b.references, partial(extract, keep=True))
    )
    boxes = batch.once("boxes", lambda: read_grounded(batch.reports, extract))
    return batch.once("grounding", lambda: grounding(boxes, references))[name]


Term = Callable[[RewardBatch], np.ndarray]
_LEVELS = "simple", "partial", "complete"


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
    offsets = np.concatenate([[0], np.cumsum(part)])[entities.offsets]
    return _rows(offsets, entities.presence[part], entities.embedding[part])


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
    # the three read each text once
    **{f"radgraph_{x}": partial(radgraph_score, level=x) for x in _LEVELS},
    "ratescore": rate_score,
    "bertscore": bert_score,
    "radcliq": negated_radcliq,
    "sdr": sentence_sets,
    "crimson": crimson_score,
    **{name: partial(grounded, name=name) for name in GROUNDING},
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
