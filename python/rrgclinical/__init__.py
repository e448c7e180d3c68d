"""Clinical reading of reports: 14 labels, entities, and the metrics built on them."""

from __future__ import annotations

from rrgclinical.backends import (
    Extractor,
    Labeller,
    build_extractor,
    build_labeller,
    register_extractor,
    register_labeller,
)
from rrgclinical.entities import KINDS, Entities
from rrgclinical.labels import (
    CHEXPERT_5,
    NO_FINDING,
    OBSERVATIONS,
    ClassId,
    chexpert_five,
    to_binary,
    to_signs,
)
from rrgclinical.scoring import score

__all__ = [
    "CHEXPERT_5",
    "KINDS",
    "NO_FINDING",
    "OBSERVATIONS",
    "ClassId",
    "Entities",
    "Extractor",
    "Labeller",
    "build_extractor",
    "build_labeller",
    "chexpert_five",
    "register_extractor",
    "register_labeller",
    "score",
    "to_binary",
    "to_signs",
]
