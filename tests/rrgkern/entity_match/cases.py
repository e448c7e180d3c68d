"""Reports as lists of entities, the strategy that draws them, and a match worked out one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from rrgkern import ReportEntities
from tests.rrgkern.many_cases import Cases, Choices

# Directions in the plane, 30 degrees apart: many ties.
PALETTE = torch.tensor([[math.cos(k * math.pi / 6), math.sin(k * math.pi / 6)] for k in range(12)])
COSINE = (PALETTE.double() @ PALETTE.double().T).float().tolist()
KINDS = 3


@dataclass(frozen=True)
class Entity:
    """A direction of the palette, 1 present, 0 absent or -1 neither, and a kind."""

    concept: int
    presence: int
    kind: int


Report = tuple[Entity, ...]


def some_report(choices: Choices) -> Report:
    return tuple(
        Entity(choices.below(12), choices.below(3) - 1, choices.below(KINDS))
        for _ in range(choices.below(7))
    )


pairs = Cases(lambda choices: (some_report(choices), some_report(choices)), 38)
# Sixteenths add up exactly, so a total of zero is really zero.
tables = st.integers(0, 17 ** (KINDS**2) - 1).map(
    lambda digits: (
        torch.tensor([digits // 17**k % 17 for k in range(KINDS**2)]).reshape(KINDS, KINDS) / 16
    )
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
    """RaTEScore's weighted mean of the best cosines over the entities of one side.

    Of equal cosines one that does not cross presence counts, of those the heaviest.
    """
    total, mass = [], []
    for entity in mine:
        cosine, _ = best(entity, theirs, 0)
        equal = []
        for other in theirs:
            weight = affinity[entity.kind][other.kind]
            crosses = {entity.presence, other.presence} == {0, 1}
            gain = fp32(weight * neg_weight) if crosses else weight
            if COSINE[entity.concept][other.concept] == cosine:
                equal.append((not crosses, weight, gain))
        _, weight, gain = max(equal)
        total.append(cosine * gain)
        mass.append(weight)
    return math.fsum(total) / math.fsum(mass) if any(mass) else 0.0


def same_scores(found: list[list[float]], wanted: list[list[float]]) -> bool:
    """Equal as fp32 numbers, but for the rounding of a cosine of two orthogonal rows, and what the
    harmonic mean makes of such a rounding where precision and recall cancel."""
    for row, other in zip(found, wanted, strict=True):
        p, r, _ = other
        steep = 2 * max(p * p, r * r) / (p + r) ** 2 if p + r else math.inf
        for a, b, amplified in zip(row, other, (0.0, 0.0, steep), strict=True):
            if not math.isclose(a, b, rel_tol=1e-7, abs_tol=1e-15 * (1 + amplified)):
                return False
    return True


def scores(x: list[Entity], y: list[Entity], affinity: list, neg_weight: float) -> list[float]:
    """Precision, recall and score in fp32."""
    if not x or not y:
        return [0.5, 0.5, 0.5]
    p, r = mean(x, y, affinity, neg_weight), mean(y, x, affinity, neg_weight)
    return [fp32(p), fp32(r), fp32(2 * p * r / (p + r) if p + r != 0 else 0.0)]
