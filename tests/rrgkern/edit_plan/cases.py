"""Report pairs written as plain data, the strategy that draws them, and their tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import torch

from rrgkern import SentenceEntities
from tests.rrgkern.many_cases import Cases, Choices

# Directions in the plane 15 degrees apart, and one whose cosine with the first is fp32(0.6).
PALETTE = torch.tensor(
    [[math.cos(k * math.pi / 12), math.sin(k * math.pi / 12)] for k in range(24)] + [[0.6, 0.8]]
)
EDGE = 24
# The upper half and the edge: near enough to each other for two hops to be common.
CONCEPTS = [*range(12), EDGE]
TAU = 0.6


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


PRESENCE = [1, 1, 1, 0, 0, -1]


@dataclass(frozen=True)
class Case:
    """A report, its reference, and the seed of the pair."""

    x: Report
    y: Report
    seed: int


def some_entities(choices: Choices) -> tuple[Entity, ...]:
    return tuple(
        Entity(choices.of(CONCEPTS), choices.of(PRESENCE)) for _ in range(choices.below(4))
    )


def some_report(choices: Choices, meanings: list[tuple[Entity, ...]], faithful: bool) -> Report:
    """Usually a text has one meaning; sometimes its entities change from place to place, as with
    an extractor that looks at the context."""
    texts = [choices.below(len(meanings)) for _ in range(choices.below(7))]
    return tuple(
        Sentence(text, meanings[text] if faithful else some_entities(choices)) for text in texts
    )


def contradicting(choices: Choices, y: Report) -> Report:
    """The reference with two findings, alike and opposed, put into it, in one sentence or in two;
    concepts up to 45 degrees apart are alike."""
    concept, presence = choices.below(12), choices.below(2)
    pair = (Entity(concept, presence), Entity(min(concept + choices.below(4), 11), 1 - presence))
    texts = 100 + choices.below(2), 102 + choices.below(2)
    together = choices.below(2) == 1
    added = [Sentence(texts[0], pair if together else pair[:1])]
    added += [] if together else [Sentence(texts[1], pair[1:])]
    sentences = list(y)
    for sentence in added:
        sentences.insert(choices.below(len(sentences) + 1), sentence)
    return tuple(sentences)


def make_case(choices: Choices, contradicts: bool = False) -> Case:
    seed = choices.seed()
    meanings = [some_entities(choices) for _ in range(1 + choices.below(8))]
    faithful = choices.below(4) > 0
    y = some_report(choices, meanings, faithful)
    if contradicts:
        y = contradicting(choices, y)
        # The report may say some of it, too.
        meanings += [sentence.entities for sentence in y if sentence.text >= 100]
    x = some_report(choices, meanings, faithful)
    if contradicts:
        said = {sentence.text for sentence in y if sentence.text >= 100}
        texts = iter(sorted(said))
        names = {k: next(texts, k) for k in range(len(meanings) - len(said), len(meanings))}
        x = tuple(Sentence(names.get(s.text, s.text), s.entities) for s in x)
    return Case(x, y, seed)


any_cases = Cases(make_case, 160)
contradicting_cases = Cases(lambda choices: make_case(choices, True), 160)


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
