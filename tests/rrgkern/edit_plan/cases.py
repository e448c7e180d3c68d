"""Report pairs written as plain data, the strategy that draws them, and their tensors."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from random import Random

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from rrgkern import SentenceEntities

# Directions in the plane 15 degrees apart, and one whose cosine with the first is fp32(0.6).
PALETTE = torch.tensor(
    [[math.cos(k * math.pi / 12), math.sin(k * math.pi / 12)] for k in range(24)] + [[0.6, 0.8]]
)
EDGE = 24
# The upper half and the edge: near enough to each other for two hops to be common.
CONCEPTS = [*range(12), EDGE]
TAU = 0.6

# RRGKERN_EXAMPLES=5000 digs deeper than the default run.
many = settings(
    max_examples=int(os.environ.get("RRGKERN_EXAMPLES", "300")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@dataclass(frozen=True)
class Entity:
    """A finding: its direction in the palette, and 1 present, 0 absent, -1 takes no part."""

    concept: int
    presence: int

    @property
    def key(self) -> int:
        """Same text and type."""
        return self.concept * 3 + self.presence


@dataclass(frozen=True)
class Sentence:
    """A text, by number, and the entities in it."""

    text: int
    entities: tuple[Entity, ...] = ()


Report = tuple[Sentence, ...]


def tensors(reports: list[Report], width: int = 2, garbage: float = 0.0) -> SentenceEntities:
    """The reports as `SentenceEntities`; entities that take no part embed to `garbage`."""
    sentences = [len(report) for report in reports]
    entities = [
        (i, entity) for report in reports for i, s in enumerate(report) for entity in s.entities
    ]
    counts = [sum(len(s.entities) for s in report) for report in reports]
    embedding = torch.zeros(len(entities), width)
    for row, (_, entity) in enumerate(entities):
        embedding[row, :2] = PALETTE[entity.concept] if entity.presence >= 0 else garbage
    return SentenceEntities(
        torch.tensor([0, *sentences]).cumsum(0),
        torch.tensor([s.text for report in reports for s in report], dtype=torch.int64),
        torch.tensor([0, *counts]).cumsum(0),
        torch.tensor([i for i, _ in entities], dtype=torch.int32),
        torch.tensor([e.presence for _, e in entities], dtype=torch.int8),
        torch.tensor([e.key for _, e in entities], dtype=torch.int64),
        embedding,
    )


entity = st.builds(Entity, st.sampled_from(CONCEPTS), st.sampled_from([1, 1, 1, 0, 0, -1]))
entity_lists = st.lists(entity, max_size=3).map(tuple)
seeds = st.integers(-(2**63), 2**63 - 1)


@st.composite
def small_pairs(draw: st.DrawFn) -> tuple[Report, Report]:
    """A report and its reference that hypothesis composes and shrinks: the odd corners.

    Usually a text has one meaning; sometimes its entities change from place to place, as with
    an extractor that looks at the context.
    """
    meanings = draw(st.lists(entity_lists, min_size=1, max_size=8))
    faithful = draw(st.booleans())
    texts = st.lists(st.integers(0, len(meanings) - 1), max_size=5)
    x, y = (
        tuple(Sentence(t, meanings[t] if faithful else draw(entity_lists)) for t in draw(texts))
        for _ in range(2)
    )
    return x, y


def random_pair(seed: int, sentences: int = 6, texts: int = 12) -> tuple[Report, Report]:
    """A report and its reference of some length, in which every rule has its turn."""
    random = Random(seed)

    def some_entities() -> tuple[Entity, ...]:
        found = [
            Entity(random.choice(CONCEPTS), random.choice([1, 1, 1, 0, 0, -1]))
            for _ in range(random.randint(0, 3))
        ]
        return tuple(found + random.choices(found, k=random.randint(0, 2)) if found else found)

    meanings = [some_entities() for _ in range(texts)]
    x, y = (
        tuple(
            Sentence(t, meanings[t] if random.random() < 0.9 else some_entities())
            for t in random.choices(range(texts), k=random.randint(0, sentences))
        )
        for _ in range(2)
    )
    return x, y


def pairs() -> st.SearchStrategy[tuple[Report, Report]]:
    """Both kinds."""
    return st.one_of(small_pairs(), st.integers(0, 2**32).map(random_pair))
