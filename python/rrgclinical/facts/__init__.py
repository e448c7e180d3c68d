"""FactS (OraPO): atomic facts of a report, and what they say of the 14 labels."""

from __future__ import annotations

from rrgclinical.facts.endpoint import (
    DENIED,
    ENTAILED,
    NOT_MENTIONED,
    CachedFacts,
    EndpointFacts,
    FactReader,
    FactReading,
    RulesFacts,
    build_facts,
    fact_scores,
)

__all__ = [
    "DENIED",
    "ENTAILED",
    "NOT_MENTIONED",
    "CachedFacts",
    "EndpointFacts",
    "FactReader",
    "FactReading",
    "RulesFacts",
    "build_facts",
    "fact_scores",
]
