"""Denial, doubt and duty: the class of a sentence follows from its parts, for every finding."""

from __future__ import annotations

import random

import pytest

from rrgclinical import OBSERVATIONS, ClassId, build_labeller
from tests.rrgclinical.parts_of_assertions import FINDINGS, KINDS, drawn

LABELLER = build_labeller("rules")
EACH = 40
"""Readings drawn of a template."""
RIGHT = 0.97


def misread(texts: list[tuple[str, str]], status: ClassId) -> list[str]:
    """The texts whose finding has another status."""
    labels = LABELLER.label([text for text, _ in texts])
    return [
        text
        for (text, finding), row in zip(texts, labels, strict=True)
        if row[OBSERVATIONS.index(finding)] != status
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_class_follows_from_the_parts(kind):
    status, templates = KINDS[kind]
    rng = random.Random(kind)
    texts = []
    for template in templates:
        for sentence in drawn(template, EACH, rng):
            for finding, term in FINDINGS.items():
                text = sentence.replace("{}", term)
                texts.append((text[0].upper() + text[1:], finding))
    assert len(misread(texts, status)) <= (1 - RIGHT) * len(texts), misread(texts, status)[:20]
