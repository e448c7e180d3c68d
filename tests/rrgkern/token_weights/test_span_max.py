"""The largest saliency over shared characters, against a search through sets of characters."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from rrgkern import ByteVocabulary, byte_level_spans, csrc, span_max, tfidf_weights
from rrgkern.token_weights import reference
from rrgkern.token_weights import reference as reference_module
from tests.mutants import survivors
from tests.rrgkern.many_cases import Choices, for_all
from tests.rrgkern.token_weights import cases
from tests.rrgkern.token_weights.cases import alignment_tensors as tensors
from tests.rrgkern.token_weights.cases import alignments


def by_search(batch: list) -> list[float]:
    return [
        max((value for span, value in found if set(range(*span)) & set(range(*token))), default=0.0)
        for found, tokens in batch
        for token in tokens
    ]


@for_all(alignments)
def test_every_token_takes_the_largest_it_touches(batch: list) -> None:
    saliency = span_max(*tensors(batch))
    assert saliency.dtype == torch.float32
    assert saliency.tolist() == by_search(batch)


BATCH = [
    ([((0, 4), 2.0), ((4, 5), 0.5), ((6, 9), 3.0)], [(0, 2), (2, 6), (5, 6), (3, 3), (8, 20)]),
    ([], [(0, 3)]),
    ([((1, 1), 9.0), ((0, 2), 1.0)], []),
    ([((1, 1), 9.0), ((0, 2), 0.0)], [(0, 3), (1, 2)]),
]


def test_by_hand() -> None:
    assert span_max(*tensors(BATCH)).tolist() == [2.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0]


def test_dtypes_strides_and_repeats_change_no_bit() -> None:
    saliency, piece_spans, piece_offsets, token_spans, token_offsets = tensors(BATCH)
    expected = span_max(*tensors(BATCH))
    variant = span_max(
        torch.stack([saliency, -saliency], 1)[:, 0].double(),
        piece_spans.T.contiguous().T,
        piece_offsets,
        token_spans.long(),
        token_offsets,
    )
    assert torch.equal(variant, expected)


def test_opcheck_and_compile() -> None:
    torch.library.opcheck(torch.ops.rrgkern.span_max.default, tensors(BATCH))
    compiled = torch.compile(span_max, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*tensors(BATCH)), span_max(*tensors(BATCH)))


@pytest.mark.parametrize(
    ("position", "value", "error", "message"),
    [
        (0, torch.tensor([1.0, torch.nan]), ValueError, "saliency is nan at piece 1"),
        (1, torch.zeros(2, 3, dtype=torch.int32), ValueError, r"wanted shape \[2, 2\]"),
        (2, torch.tensor([0, 1]), ValueError, "piece_offsets runs from 0 to 1"),
        (4, torch.tensor([0, 0, 1]), ValueError, r"token_offsets is int64 \[3\]"),
    ],
)
def test_wrong_tensors_are_named(position, value, error, message) -> None:
    arguments = list(tensors([([((0, 1), 1.0), ((1, 2), 2.0)], [(0, 1)])]))
    arguments[position] = value
    with pytest.raises(error, match=message):
        span_max(*arguments)


def right(reference: object) -> bool:
    return reference.span_max_reference(*tensors(BATCH)).tolist() == by_search(BATCH)


def test_planted_faults_die() -> None:
    assert not survivors(reference_module, "span_max", right)


# The compiled weights and spans equal the references bit for bit.
needs_extension = pytest.mark.skipif(
    csrc.why_not("token_weights", "cpu") is not None,
    reason=str(csrc.why_not("token_weights", "cpu")),
)


@needs_extension
@for_all(cases.groups, alpha=st.sampled_from([-1.5, 0.0, 1.0, 4.0, 1e20]))
def test_tfidf_weights_are_equal(batch: list[cases.Group], alpha: float) -> None:
    ids, offsets, group_offsets = cases.group_tensors(batch)
    logs = torch.arange(len(offsets), dtype=torch.float64).log()
    assert torch.equal(
        tfidf_weights(ids, offsets, group_offsets, alpha=alpha),
        reference.tfidf_weights_reference(ids, offsets, group_offsets, logs, alpha),
    )


@needs_extension
@for_all(cases.alignments, backwards=st.booleans())
def test_largest_saliencies_are_equal(batch: list[cases.Aligned], backwards: bool) -> None:
    arguments = list(cases.alignment_tensors(batch))
    if backwards:  # a span that ends before it starts holds nothing
        arguments[1] = arguments[1].flip(1)
    assert torch.equal(span_max(*arguments), reference.span_max_reference(*arguments))


@needs_extension
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


@needs_extension
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
