"""CheXbert's own weights, read in batches: the 14 labels, and the saliency of each token."""

from __future__ import annotations

from rrgclinical.chexbert.labeller import CheXbertLabeller
from rrgclinical.chexbert.saliency import piece_saliency, token_saliency_weights
from rrgclinical.labels import to_classification

__all__ = ["CheXbertLabeller", "piece_saliency", "to_classification", "token_saliency_weights"]
