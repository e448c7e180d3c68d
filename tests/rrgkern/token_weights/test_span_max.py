"""The largest saliency over shared characters, against a search through sets of characters."""

from __future__ import annotations

import pytest
import torch

from rrgkern import span_max
from rrgkern.token_weights import reference as reference_module
from tests.mutants import mutate
from tests.rrgkern.many_cases import for_all
from tests.rrgkern.token_weights.cases import alignment_tensors as tensors
from tests.rrgkern.token_weights.cases import alignments


def by_search(batch: list) -> list[float]:
    return [
        max(
            (value for span, value in found if set(range(*span)) & set(range(*token))),
            default=0.0,
        )
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
        (0, torch.tensor([-1.0, 1.0]), ValueError, "saliency is -1.0 at piece 0"),
        (0, torch.tensor([torch.inf, 1.0]), ValueError, "saliency is inf at piece 0"),
        (0, torch.tensor([1, 2]), TypeError, "saliency is int64"),
        (1, torch.zeros(2, 3, dtype=torch.int32), ValueError, r"wanted shape \[2, 2\]"),
        (2, torch.tensor([0, 1]), ValueError, "piece_offsets runs from 0 to 1"),
        (3, torch.zeros(4), TypeError, "token_spans is float32"),
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


def test_the_reference_itself_is_right() -> None:
    assert right(reference_module)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("piece_start) < torch.minimum", "piece_start) <= torch.minimum"),
        (".amax(1)", ".amin(1)"),
        ("torch.where(shares.any(1), best, 0.0)", "best"),
        ("slice(*tokens), slice(*pieces)", "slice(*tokens), slice(0, None)"),
    ],
)  # fmt: skip
def test_planted_faults_die(old: str, new: str) -> None:
    assert not right(mutate(reference_module, old, new))
