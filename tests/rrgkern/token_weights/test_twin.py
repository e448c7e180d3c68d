"""The compiled weights and spans equal the references bit for bit."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rrgkern import ByteVocabulary, byte_level_spans, csrc, span_max, tfidf_weights
from rrgkern.token_weights import reference

pytestmark = pytest.mark.skipif(
    csrc.why_not("token_weights", "cpu") is not None,
    reason=str(csrc.why_not("token_weights", "cpu")),
)
many = settings(max_examples=int(os.environ.get("RRGKERN_EXAMPLES", "300")), deadline=None)
sizes = st.lists(st.integers(0, 9), max_size=6)
seeds = st.integers(0, 2**31)


def offsets_of(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *lengths]).cumsum(0)


@given(st.lists(sizes, max_size=4), st.sampled_from([-1.5, 0.0, 1.0, 4.0, 1e20]), seeds)
@many
def test_tfidf_weights_are_equal(groups: list[list[int]], alpha: float, seed: int) -> None:
    lengths = [length for group in groups for length in group]
    offsets, group_offsets = offsets_of(lengths), offsets_of([len(group) for group in groups])
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(-4, 5, (sum(lengths),), generator=generator)
    logs = torch.arange(len(offsets), dtype=torch.float64).log()
    assert torch.equal(
        tfidf_weights(ids, offsets, group_offsets, alpha=alpha),
        reference.tfidf_weights_reference(ids, offsets, group_offsets, logs, alpha),
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=5), seeds)
@many
def test_largest_saliencies_are_equal(reports: list[tuple[int, int]], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    pieces, tokens = (offsets_of([report[k] for report in reports]) for k in (0, 1))
    spans = [
        torch.randint(0, 12, (int(offsets[-1]), 2), generator=generator, dtype=torch.int32)
        for offsets in (pieces, tokens)
    ]
    saliency = torch.rand(int(pieces[-1]), generator=generator)
    arguments = (saliency, spans[0], pieces, spans[1], tokens)
    assert torch.equal(span_max(*arguments), reference.span_max_reference(*arguments))


@given(sizes, st.integers(1, 20), seeds)
@many
def test_character_spans_are_equal(lengths: list[int], words: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    spelled = torch.randint(0, 4, (words,), generator=generator).tolist()
    # Half of all bytes drawn from those that begin or continue a character of several.
    data = torch.randint(0, 256, (sum(spelled),), generator=generator)
    data = torch.where(data % 2 == 0, data % 0x80 + 0x80, data).to(torch.uint8)
    vocabulary = ByteVocabulary(data, offsets_of(spelled))
    ids = torch.randint(0, words, (sum(lengths),), generator=generator)
    arguments = (ids, offsets_of(lengths), *vocabulary)
    assert torch.equal(
        byte_level_spans(*arguments[:2], vocabulary),
        reference.byte_level_spans_reference(*arguments),
    )
