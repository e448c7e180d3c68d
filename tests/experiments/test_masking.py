"""DEER's masking check where the answer is known, without a policy."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.masking_check import Judged, mask_top


def words_of(text: str) -> list[tuple[int, int]]:
    """A token for each word, with the space before it, as byte-level vocabularies cut."""
    spans, begin = [], 0
    for word in text.split(" "):
        end = begin + len(word) + (begin > 0)
        spans.append((begin, end))
        begin = end
    return spans


TEXT = "There is a large left effusion . The heart is normal ."


def test_the_heaviest_tokens_are_masked_and_the_space_stays() -> None:
    spans = words_of(TEXT)
    weights = np.ones(len(spans))
    weights[5] = 3.0
    weights[3] = 2.0
    assert mask_top(TEXT, spans, weights, 0.1, seed=0) == TEXT.replace("large", "[MASK]").replace(
        "effusion", "[MASK]"
    ), "two of twelve tokens are the tenth, rounded up"
    assert mask_top(TEXT, spans, weights, 0.01, seed=0) == TEXT.replace("effusion", "[MASK]")
    assert mask_top(TEXT, spans, weights, 1.0, seed=0).split() == ["[MASK]"] * 12


def test_tokens_without_a_word_are_neither_counted_nor_masked() -> None:
    text = "no  edema"
    spans = [(0, 2), (2, 3), (3, 9), (9, 9)]
    weights = np.array([1.0, 9.0, 2.0, 9.0])
    assert mask_top(text, spans, weights, 0.1, seed=0) == "no  [MASK]"
    assert mask_top("", [(0, 0)], np.ones(1), 0.1, seed=0) == ""
    # one character of several bytes, which two tokens share, is masked once
    assert mask_top("é b", [(0, 1), (0, 1), (1, 3)], np.array([2.0, 2, 1]), 0.6, 0) == "[MASK] b"


def test_measures_by_hand() -> None:
    before = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    after = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]], dtype=bool)
    found = Judged(before, after).measures(group=2)
    assert found["modified"].units == 2 and found["modified"].top[:, 0].tolist() == [0.5, 0.5]
    # 2 hits; 4 labels before and 3 after
    assert found["post_f1"].value()[0] == pytest.approx(2 * 2 / (4 + 3))
    assert found["post_f1"].value(np.array([[2.0, 0.0]]))[0] == pytest.approx(4 / 5)
