"""RaTEScore's own weights, read in batches: entities with embeddings, and the score's weights."""

from __future__ import annotations

from rrgclinical.ratescore.affinity import affinity
from rrgclinical.ratescore.decode import decode_labels
from rrgclinical.ratescore.extractor import RaTEExtractor

__all__ = ["RaTEExtractor", "affinity", "decode_labels"]
