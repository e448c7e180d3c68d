"""Labels into entities, the package's habits included."""

from __future__ import annotations

import pytest

from rrgclinical.ratescore import decode_labels

# labels between [CLS] and [SEP] (both O unless given), and (first, last, type) with [CLS] at 0
CASES = [
    ("", []),
    ("O O", []),
    ("B-X O", [(1, 1, "X")]),
    ("B-X I-X O", [(1, 2, "X")]),
    ("B-X I-X I-X O B-Y O", [(1, 3, "X"), (5, 5, "Y")]),
    ("B-X B-Y O", [(1, 1, "X"), (2, 2, "Y")]),
    ("B-X I-X B-Y O", [(1, 2, "X"), (3, 3, "Y")]),
    # the closing token's O ends what is open
    ("B-X I-X", [(1, 2, "X")]),
    ("O B-X", [(2, 2, "X")]),
    # I- of another type goes on, and the type is that of B-
    ("B-X I-Y O", [(1, 2, "X")]),
    # I- alone is dropped
    ("I-X O", []),
    ("O I-X I-X O", []),
    # but B- after it takes its place as a start at once
    ("I-X B-Y O", [(2, 2, "Y")]),
]


@pytest.mark.parametrize(("inner", "wanted"), CASES)
def test_decode(inner: str, wanted: list[tuple[int, int, str]]) -> None:
    labels = ["O", *inner.split(), "O"]
    special = [index in (0, len(labels) - 1) for index in range(len(labels))]
    assert decode_labels(labels, special) == wanted


@pytest.mark.parametrize(
    ("inner", "closing", "wanted"),
    [
        # the label of [SEP] is looked at: an entity that it continues runs to the last token
        ("B-X I-X", "I-X", [(1, 2, "X")]),
        ("O B-X", "I-Y", [(2, 2, "X")]),
        ("B-X O B-Y I-Y", "I-Y", [(1, 1, "X"), (3, 4, "Y")]),
        # an end remembered from a B- that followed at once hides the open entity
        ("B-X B-Y I-Y", "I-Y", [(1, 1, "X")]),
        ("B-X I-X B-Y", "I-Y", [(1, 2, "X")]),
        # and O forgets it
        ("B-X B-Y O B-X I-X", "I-X", [(1, 1, "X"), (2, 2, "Y"), (4, 5, "X")]),
        # a B- on [SEP] closes what is open there, and nothing begins
        ("B-X I-X", "B-Y", [(1, 2, "X")]),
    ],
)
def test_the_label_of_the_closing_token_counts(inner, closing, wanted) -> None:
    labels = ["O", *inner.split(), closing]
    special = [index in (0, len(labels) - 1) for index in range(len(labels))]
    assert decode_labels(labels, special) == wanted


def test_a_special_token_typed_into_a_report_holds_nothing() -> None:
    labels = ["I-X", "B-X", "B-Y", "B-X", "O"]
    assert decode_labels(labels, [True, False, True, False, True]) == [(1, 1, "X"), (3, 3, "X")]
