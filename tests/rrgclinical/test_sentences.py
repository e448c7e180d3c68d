"""The sentence splitter on texts that fool naive ones."""

from __future__ import annotations

import itertools

from rrgclinical.rules import split_sentences
from tests.rrgclinical.cases import splits


def test_split():
    """All that are cut wrongly are listed at once."""
    wrong = {}
    for text, wanted in splits():
        spans = split_sentences(text)
        ordered = all(low[1] <= high[0] for low, high in itertools.pairwise(spans))
        sentences = [text[start:end] for start, end in spans]
        if sentences != wanted or not ordered:
            wrong[text] = sentences
    assert not wrong and len(splits()) == 59
