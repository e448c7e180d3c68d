"""CheXbert's own weights, read in batches: the 14 labels, and the saliency of each token."""

from __future__ import annotations

from rrgclinical.chexbert.labeller import CheXbertLabeller, Reading, to_classification
from rrgclinical.chexbert.saliency import (
    PieceSaliency,
    TokenSaliency,
    piece_saliency,
    token_saliency_weights,
)

__all__ = [
    "CheXbertLabeller",
    "PieceSaliency",
    "Reading",
    "TokenSaliency",
    "piece_saliency",
    "to_classification",
    "token_saliency_weights",
]
