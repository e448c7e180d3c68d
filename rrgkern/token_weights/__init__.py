"""Token weights of DiTPO: TF-IDF over a group, and saliency carried between tokenizers."""

from __future__ import annotations

from rrgkern.token_weights.api import (
    ByteVocabulary,
    byte_alphabet,
    byte_level_spans,
    byte_vocabulary,
    span_max,
    tfidf_weights,
)

__all__ = [
    "ByteVocabulary",
    "byte_alphabet",
    "byte_level_spans",
    "byte_vocabulary",
    "span_max",
    "tfidf_weights",
]
