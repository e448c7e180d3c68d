"""RaTEScore's own weights, read in batches: entities with embeddings, and the score's weights."""

from __future__ import annotations

from rrgclinical.ratescore.affinity import TYPES, affinity
from rrgclinical.ratescore.extractor import RaTEExtractor, decode_labels
from rrgclinical.ratescore.sentence_sets import SentenceEmbedder

__all__ = ["TYPES", "RaTEExtractor", "SentenceEmbedder", "affinity", "decode_labels"]
