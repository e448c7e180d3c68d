"""Best matches between the entities of two reports, and RaTEScore's form of a score."""

from __future__ import annotations

from rrgkern.entity_match.api import entity_match
from rrgkern.entity_match.inputs import ANY, EQUAL, OPPOSITE, EntityMatch, ReportEntities

__all__ = ["ANY", "EQUAL", "OPPOSITE", "EntityMatch", "ReportEntities", "entity_match"]
