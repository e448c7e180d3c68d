"""A GPU weighs and aligns as the CPU does, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from rrgkern import ByteVocabulary, byte_level_spans, csrc, span_max, tfidf_weights
from tests.rrgkern.many_cases import Choices
from tests.rrgkern.token_weights import cases

pytestmark = pytest.mark.gpu


def drawn(make: Callable[[Choices], Any], count: int) -> list[Any]:
    generator = random.Random(count)
    return [make(Choices(generator.randbytes(40))) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 1, 3000])
def test_weights_and_spans_are_equal(count: int) -> None:
    assert csrc.why_not("token_weights", "cuda") is None, "build the extension for this GPU first"
    groups = cases.group_tensors(drawn(cases.some_group, count))
    alignments = cases.alignment_tensors(drawn(cases.some_alignment, count))
    ids, offsets, vocabulary = cases.token_tensors(drawn(cases.some_tokens, count))
    for _ in range(2):
        found = tfidf_weights(*(tensor.cuda() for tensor in groups))
        assert torch.equal(found.cpu(), tfidf_weights(*groups))
        found = span_max(*(tensor.cuda() for tensor in alignments))
        assert torch.equal(found.cpu(), span_max(*alignments))
        there = ByteVocabulary(*(tensor.cuda() for tensor in vocabulary))
        found = byte_level_spans(ids.cuda(), offsets.cuda(), there)
        assert torch.equal(found.cpu(), byte_level_spans(ids, offsets, vocabulary))
