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


SLIPS = {
    "cannot": ("{} cannot be excluded.", ClassId.UNCERTAIN),
    "excluded": ("{} cannot be excluded.", ClassId.UNCERTAIN),
    "ruled": ("{} cannot be ruled out.", ClassId.UNCERTAIN),
    "without": ("clear lungs without {}.", ClassId.NEGATIVE),
    "not": ("{} is not seen.", ClassId.NEGATIVE),
    "no": ("there is no {}.", ClassId.NEGATIVE),
    "never": ("{} was never seen.", ClassId.NEGATIVE),
    "unable": ("unable to exclude {}.", ClassId.UNCERTAIN),
    "unlikely": ("{} is unlikely.", ClassId.NEGATIVE),
    "possible": ("possible {}.", ClassId.UNCERTAIN),
    "evidence": ("no evidence of {}.", ClassId.NEGATIVE),
    "absent": ("{} is absent.", ClassId.NEGATIVE),
    "negative": ("negative for {}.", ClassId.NEGATIVE),
}


def slips(word: str) -> list[str]:
    """A letter doubled or dropped, two swapped; of a short word letters are doubled alone."""
    places = range(1, len(word))
    doubled = [word[:place] + word[place - 1 :] for place in range(1, len(word) + 1)]
    if len(word) < 5:
        return doubled
    dropped = [word[:place] + word[place + 1 :] for place in places]
    swapped = [
        word[:place] + word[place + 1] + word[place] + word[place + 2 :] for place in places[:-1]
    ]
    other = {"exclude", "rule", word}  # words of their own
    return [slip for slip in (*doubled, *dropped, *swapped) if slip not in other]


@pytest.mark.parametrize("word", SLIPS)
def test_a_slip_in_a_word_that_denies_or_doubts_changes_nothing(word):
    template, status = SLIPS[word]
    texts = [
        (template.replace(word, slip).replace("{}", term), finding)
        for slip in slips(word)
        for finding, term in FINDINGS.items()
    ]
    assert not misread(texts, status)
