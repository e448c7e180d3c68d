"""Reward terms by severity, BERTScore, RadCliQ-v1, CRIMSON and sets of sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rrgkern import ReportEntities, entity_match
from rrgtrain.rewards.batch import RewardBatch


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
