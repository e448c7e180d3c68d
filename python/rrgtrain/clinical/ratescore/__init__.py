"""RaTEScore's own weights, read in batches: entities with embeddings, and the score's weights."""

from __future__ import annotations

from rrgtrain.clinical.ratescore.affinity import affinity
from rrgtrain.clinical.ratescore.decode import decode_labels
from rrgtrain.clinical.ratescore.extractor import RaTEExtractor

__all__ = ["RaTEExtractor", "affinity", "decode_labels"]
