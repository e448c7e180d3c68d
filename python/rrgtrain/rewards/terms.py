"""Reward terms: functions from a `RewardBatch` to one value per report, all in [0, 1].

With `labeller=rules` and `extractor=rules` they are the embedded, offline counterparts of the
published metrics, and no result of theirs may be quoted as CheXbert, RadGraph or RaTEScore.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import torch

from rrgkern import ReportEntities, entity_match, mccs
from rrgtrain.clinical import Entities
from rrgtrain.clinical.metrics import single_report_f1
from rrgtrain.rewards.batch import RewardBatch

Term = Callable[[RewardBatch], np.ndarray]


def label_f1(batch: RewardBatch) -> np.ndarray:
    """Micro-F1 over the 14 labels of one report; two all-blank reports give 0 (EditGRPO)."""
    return single_report_f1(batch.report_labels, batch.reference_labels)


def margin_cosine(batch: RewardBatch) -> np.ndarray:
    """MCCS: margin cosine similarity of the label vectors (MRG-R1)."""
    pred, truth = torch.as_tensor(batch.report_labels), torch.as_tensor(batch.reference_labels)
    return mccs(pred, truth, margin=batch.margin).double().numpy()


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
    return entity_match(x, y, neg_weight=batch.neg_weight).score.double().numpy()


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
    "mccs": margin_cosine,
    "entity_f1": entity_f1,
    "match": match,
}
