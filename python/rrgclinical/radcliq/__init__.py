"""RadCliQ-v1 from its parts: RadGraph, BERTScore and CheXbert's embeddings."""

from __future__ import annotations

from rrgclinical.radcliq.composite import (
    BertScore,
    RadCliQ,
    RadCliQParts,
    entity_relation_f1,
    radcliq_v1,
)

__all__ = ["BertScore", "RadCliQ", "RadCliQParts", "entity_relation_f1", "radcliq_v1"]
