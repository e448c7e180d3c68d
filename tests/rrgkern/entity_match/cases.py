"""Reports as lists of entities, the strategy that draws them, and a match worked out one by one."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import torch
from hypothesis import settings
from hypothesis import strategies as st

from rrgkern import ReportEntities

# Directions in the plane, 30 degrees apart: many ties.
PALETTE = torch.tensor([[math.cos(k * math.pi / 6), math.sin(k * math.pi / 6)] for k in range(12)])
COSINE = (PALETTE.double() @ PALETTE.double().T).float().tolist()
KINDS = 3
many = settings(max_examples=int(os.environ.get("RRGKERN_EXAMPLES", "300")), deadline=None)


@dataclass(frozen=True)
class Entity:
    """A direction of the palette, 1 present, 0 absent or -1 neither, and a kind."""

    concept: int
    presence: int
    kind: int


entities = st.builds(
    Entity, st.integers(0, 11), st.sampled_from([-1, 0, 1]), st.integers(0, KINDS - 1)
)
pairs = st.tuples(st.lists(entities, max_size=5), st.lists(entities, max_size=5))
batches = st.lists(pairs, max_size=4)
# Sixteenths add up exactly, so a total of zero is really zero.
tables = st.lists(st.integers(0, 16), min_size=KINDS**2, max_size=KINDS**2).map(
    lambda values: torch.tensor(values).reshape(KINDS, KINDS) / 16
)


def tensors(reports: list[list[Entity]]) -> ReportEntities:
    """The reports as ragged tensors."""
    flat = [entity for report in reports for entity in report]
    return ReportEntities(
        torch.tensor([0, *map(len, reports)]).cumsum(0),
        torch.tensor([e.presence for e in flat], dtype=torch.int8),
        PALETTE[torch.tensor([e.concept for e in flat], dtype=torch.int64)],
        torch.tensor([e.kind for e in flat], dtype=torch.int8),
    )


def fp32(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float32))


def best(entity: Entity, others: list[Entity], column: int) -> tuple[float, int]:
    """Cosine and place of the best of the others: 0 any, 1 of equal, 2 of opposite presence."""
    found = (-math.inf, -1)
    for place, other in enumerate(others):
        known = entity.presence >= 0 and other.presence >= 0
        same = entity.presence == other.presence
        if column == 0 or (known and same == (column == 1)):
            cosine = COSINE[entity.concept][other.concept]
            if found[1] < 0 or cosine > found[0]:
                found = (cosine, place)
    return found


def mean(mine: list[Entity], theirs: list[Entity], affinity: list, neg_weight: float) -> float:
    """RaTEScore's weighted mean of the best cosines over the entities of one side."""
    total, mass = 0.0, 0.0
    for entity in mine:
        cosine, place = best(entity, theirs, 0)
        other = theirs[place]
        weight = affinity[entity.kind][other.kind]
        crosses = {entity.presence, other.presence} == {0, 1}
        total += cosine * (fp32(weight * neg_weight) if crosses else weight)
        mass += weight
    return total / mass if mass else 0.0


def scores(x: list[Entity], y: list[Entity], affinity: list, neg_weight: float) -> list[float]:
    """Precision, recall and score in fp32."""
    if not x or not y:
        return [0.5, 0.5, 0.5]
    p, r = mean(x, y, affinity, neg_weight), mean(y, x, affinity, neg_weight)
    return [fp32(p), fp32(r), fp32(2 * p * r / (p + r) if p + r != 0 else 0.0)]
