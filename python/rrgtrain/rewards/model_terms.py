"""Reward terms with a model of their own: graphs, facts, judges, severity, sentences."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from rrgclinical import Entities
from rrgkern import ReportEntities, entity_match
from rrgtrain.rewards.batch import RewardBatch


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


def radgraph_score(batch: RewardBatch) -> np.ndarray:
    """RadGraph-F1 at `reward.radgraph_level`; 0 where a report is empty or has no entity."""
    return _radgraph(batch, batch.settings.radgraph_level)


def radgraph_at(level: str) -> Callable[[RewardBatch], np.ndarray]:
    """Make the term RadGraph-F1 at one level; the three read each text once."""
    return partial(_radgraph, level=level)


def _radgraph(batch: RewardBatch, level: str) -> np.ndarray:
    from rrgclinical.radgraph import radgraph_f1

    reader, settings = batch.open("radgraph"), batch.settings
    wanted = batch.of_references(
        "reference graphs", lambda other: reader.annotate(other.references, keep=True)
    )
    found = batch.once("graphs", lambda: reader.annotate(batch.reports))
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
    x, y = (_with_kinds(entities) for entities in batch.entities("ratescore"))
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


def _with_kinds(entities: Entities) -> ReportEntities:
    return ReportEntities(
        offsets=torch.as_tensor(entities.offsets),
        presence=torch.as_tensor(entities.presence),
        embedding=torch.as_tensor(entities.embedding),
        kind=torch.as_tensor(entities.kind),
    )


def severity(batch: RewardBatch) -> np.ndarray:
    """Errors in the order of what they would mean for the patient (`rrgclinical.severity`).

    Read by rules whatever `reward.extractor` says; weights are those of
    `reward.options.severity.table`, the packaged ones by default. What was right, missed and
    invented, and what it cost, is kept as notes.
    """
    reader = batch.open("severity")
    references = batch.of_references(
        "severity of references", lambda other: reader.read(other.references, keep=True)
    )
    judged = batch.once(
        "severity read", lambda: reader.judge(batch.reports, batch.references, references)
    )
    batch.notes["severity"] = [one.explain(reader.table) for one in judged]
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
    return ReportEntities(
        offsets=torch.as_tensor(sets.offsets),
        presence=torch.ones(len(sets.vectors), dtype=torch.int8),
        embedding=torch.as_tensor(sets.vectors),
    )
