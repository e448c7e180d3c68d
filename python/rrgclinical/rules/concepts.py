"""Every concept the rules know, numbered."""

from __future__ import annotations

from dataclasses import replace

from rrgclinical.rules.chest_findings import CHEST_FINDINGS
from rrgclinical.rules.concept import LUNG, PLAIN, SIDED, Concept, structure
from rrgclinical.rules.lung_findings import LUNG_FINDINGS
from rrgclinical.rules.trie import phrases_of

STRUCTURES: tuple[Concept, ...] = tuple(
    structure(name)
    for name in phrases_of("""
        heart, mediastinum, lung, pleura, bone, pulmonary vessels, aorta, hilum, diaphragm,
        trachea, lymph node, soft tissue
    """)
)

CONCEPTS: tuple[Concept, ...] = (
    *(replace(c, phrases=phrases_of(t)) for c, t in (LUNG_FINDINGS | CHEST_FINDINGS).items()),
    *STRUCTURES,
)
CONCEPT_ID: dict[str, int] = {concept.name: index for index, concept in enumerate(CONCEPTS)}

__all__ = ["CONCEPTS", "CONCEPT_ID", "LUNG", "PLAIN", "SIDED", "STRUCTURES", "Concept"]
