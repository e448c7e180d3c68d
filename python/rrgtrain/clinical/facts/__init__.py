"""FactS (OraPO): atomic facts of a report, and what they say of the 14 labels."""

from __future__ import annotations

from rrgtrain.clinical.facts.cached import CachedFacts, build_facts
from rrgtrain.clinical.facts.endpoint import EndpointFacts
from rrgtrain.clinical.facts.reading import (
    DENIED,
    ENTAILED,
    NOT_MENTIONED,
    FactReader,
    FactReading,
    fact_scores,
)
from rrgtrain.clinical.facts.rules import RulesFacts

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
