"""The compiled weights and spans equal the references bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from rrgkern import ByteVocabulary, byte_level_spans, csrc, span_max, tfidf_weights
from rrgkern.token_weights import reference
from tests.rrgkern.many_cases import Choices, for_all
from tests.rrgkern.token_weights import cases

pytestmark = pytest.mark.skipif(
    csrc.why_not("token_weights", "cpu") is not None,
    reason=str(csrc.why_not("token_weights", "cpu")),
)


@for_all(cases.groups, alpha=st.sampled_from([-1.5, 0.0, 1.0, 4.0, 1e20]))
def test_tfidf_weights_are_equal(batch: list[cases.Group], alpha: float) -> None:
    ids, offsets, group_offsets = cases.group_tensors(batch)
    logs = torch.arange(len(offsets), dtype=torch.float64).log()
    assert torch.equal(
        tfidf_weights(ids, offsets, group_offsets, alpha=alpha),
        reference.tfidf_weights_reference(ids, offsets, group_offsets, logs, alpha),
    )


@for_all(cases.alignments, backwards=st.booleans())
def test_largest_saliencies_are_equal(batch: list[cases.Aligned], backwards: bool) -> None:
    arguments = list(cases.alignment_tensors(batch))
    if backwards:  # a span that ends before it starts holds nothing
        arguments[1] = arguments[1].flip(1)
    assert torch.equal(span_max(*arguments), reference.span_max_reference(*arguments))


@for_all(cases.token_reports)
def test_character_spans_are_equal(batch: list[tuple[bytes, ...]]) -> None:
    ids, offsets, vocabulary = cases.token_tensors(batch)
    # Tokens of one report in another make sequences that no text has.
    for order in (ids, ids.flip(0)):
        assert torch.equal(
            byte_level_spans(order, offsets, vocabulary),
            reference.byte_level_spans_reference(order, offsets, *vocabulary),
        )


# A GPU weighs and aligns as the CPU does, bit for bit.
def drawn(make: Callable[[Choices], Any], count: int) -> list[Any]:
    generator = random.Random(count)
    return [make(Choices(generator.randbytes(40))) for _ in range(count)]


@pytest.mark.gpu
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
