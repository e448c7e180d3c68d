"""TF-IDF weights against their definition, token by token."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import strategies as st

from rrgkern import byte_level_spans, byte_vocabulary, tfidf_weights
from rrgkern.token_weights import byte_alphabet
from rrgkern.token_weights import reference as reference_module
from tests.mutants import survivors
from tests.rrgkern.many_cases import for_all
from tests.rrgkern.token_weights.cases import Group, groups, token_reports, token_tensors
from tests.rrgkern.token_weights.cases import group_tensors as tensors


def by_definition(batch: list[Group], alpha: float) -> list[float]:
    weights = []
    for group in batch:
        for report in group:
            counts = Counter(report)
            for token in report:
                tf = counts[token] / len(report)
                idf = math.log(len(group) / sum(token in other for other in group))
                weights.append(1 + alpha * tf * idf)
    return weights


@for_all(groups, alpha=st.sampled_from([0.0, 1.0, 4.0, -2.5]))
def test_weights_follow_the_definition(batch: list[Group], alpha: float) -> None:
    weights = tfidf_weights(*tensors(batch), alpha=alpha)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(
        weights.double(),
        torch.tensor(by_definition(batch, alpha), dtype=torch.float64),
        rtol=2e-7,
        atol=2e-7,
    )


@for_all(groups)
def test_a_token_that_every_report_holds_weighs_exactly_one(batch: list[Group]) -> None:
    weights = iter(tfidf_weights(*tensors(batch)).tolist())
    for group in batch:
        shared = set.intersection(*map(set, group)) if group else set()
        for report in group:
            for token in report:
                assert (next(weights) == 1) == (token in shared)


def test_the_papers_numbers() -> None:
    batch = [[[7, 8, 8, 9], [7], [7, 9]]]
    half_ln3, quarter_ln1_5 = math.log(3) / 2, math.log(1.5) / 4
    expected = [1, 1 + 4 * half_ln3, 1 + 4 * half_ln3, 1 + 4 * quarter_ln1_5]
    expected += [1, 1, 1 + 4 * math.log(1.5) / 2]
    assert tfidf_weights(*tensors(batch)).tolist() == pytest.approx(expected, rel=1e-6)


def test_int32_ids_strides_and_repeats_change_no_bit() -> None:
    ids, offsets, group_offsets = tensors([[[1, 2, 2], [3, 1]], [[5]]])
    expected = tfidf_weights(ids, offsets, group_offsets)
    spread = torch.stack([ids, -ids], 1)[:, 0]
    assert not spread.is_contiguous()
    for variant in (ids.int(), spread, ids):
        assert torch.equal(tfidf_weights(variant, offsets, group_offsets), expected)


def test_opcheck_and_compile() -> None:
    ids, offsets, group_offsets = tensors([[[1, 2, 2], [3, 1]], [[5], []]])
    logs = torch.arange(len(offsets), dtype=torch.float64).log()
    torch.library.opcheck(
        torch.ops.rrgkern.tfidf_weights.default, (ids, offsets, group_offsets, logs, 4.0)
    )
    compiled = torch.compile(tfidf_weights, fullgraph=True, backend="aot_eager")
    assert torch.equal(
        compiled(ids, offsets, group_offsets), tfidf_weights(ids, offsets, group_offsets)
    )


@pytest.mark.parametrize(
    ("position", "value", "error", "message"),
    [
        (0, torch.ones(3, 1, dtype=torch.int64), ValueError, r"token_ids is int64 \[3, 1\]"),
        (1, torch.tensor([0, 2]), ValueError, "offsets runs from 0 to 2"),
        (2, torch.tensor([0, 2]), ValueError, "group_offsets runs from 0 to 2"),
    ],
)
def test_wrong_tensors_are_named(position, value, error, message) -> None:
    arguments = [torch.tensor([1, 2, 3]), torch.tensor([0, 3]), torch.tensor([0, 1])]
    arguments[position] = value
    with pytest.raises(error, match=message):
        tfidf_weights(*arguments)


BATCH = [[[1, 2, 2, 3], [3, 1], []], [[5, 1], [5, 5, 2]]]


def right(reference: object) -> bool:
    ids, offsets, group_offsets = tensors(BATCH)
    logs = torch.arange(len(offsets), dtype=torch.float64).log()
    found = reference.tfidf_weights_reference(ids, offsets, group_offsets, logs, 4.0)
    return found.tolist() == pytest.approx(by_definition(BATCH, 4.0), rel=1e-6)


def test_planted_faults_die() -> None:
    assert not survivors(reference_module, "tfidf_weights", right)


# Character spans of byte-level tokens, against Python's own decoder.
def by_decoder(tokens: list[bytes]) -> list[tuple[int, int]]:
    """Each byte's character, from how many characters Python makes of every prefix."""
    data = b"".join(tokens)
    # A prefix that ends inside a character counts that character as one, like the whole text.
    counts = [len(data[:end].decode("utf-8", errors="replace")) for end in range(len(data) + 1)]
    spans, place = [], 0
    for token in tokens:
        end = place + len(token)
        if token:
            spans.append((counts[place + 1] - 1, counts[end]))
        else:
            spans.append((counts[place], counts[place]))
        place = end
    return spans


@for_all(token_reports)
def test_spans_count_the_characters_of_the_decoded_text(reports: list[tuple[bytes, ...]]) -> None:
    ids, offsets, vocabulary = token_tensors(reports)
    spans = byte_level_spans(ids, offsets, vocabulary)
    assert spans.dtype == torch.int32
    expected = [span for report in reports for span in by_decoder(report)]
    assert [tuple(span) for span in spans.tolist()] == expected
    for r, report in enumerate(reports):
        text = b"".join(report).decode("utf-8", errors="replace")
        assert vocabulary.text(ids[offsets[r] : offsets[r + 1]]) == text


def test_tokens_that_share_a_character_share_its_span() -> None:
    vocabulary = byte_vocabulary(["Ġno", "Ã", "©", "<|im_end|>", "ðŁ", "ĺĢ."], special=[3])
    ids = torch.tensor([0, 1, 2, 3, 4, 5, 1, 0])
    assert vocabulary.text(ids) == " noé\U0001f600.� no"
    spans = byte_level_spans(ids, torch.tensor([0, 8]), vocabulary)
    assert spans.tolist() == [
        [0, 3], [3, 4], [3, 4], [4, 4], [4, 5], [4, 6], [6, 7], [7, 10]
    ]  # fmt: skip


def test_the_alphabet_holds_every_byte_once() -> None:
    alphabet = byte_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    assert alphabet["Ġ"] == 0x20 and alphabet["Ċ"] == 0x0A and alphabet["A"] == 0x41


def test_ids_without_a_token_hold_no_text() -> None:
    vocabulary = byte_vocabulary(["a", None, "b"])
    assert vocabulary.text(torch.tensor([0, 1, 2])) == "ab"
    assert vocabulary.text(torch.tensor([], dtype=torch.int64)) == ""


def test_a_token_outside_the_alphabet_is_named() -> None:
    with pytest.raises(ValueError, match=r"token 1 '▁the' holds '▁', no character of the byte"):
        byte_vocabulary(["a", "▁the"])


def test_opcheck_compile_and_strides() -> None:
    ids, offsets, vocabulary = token_tensors(
        [[b"a\xc3", b"\xa9", b""], [b"\xff\xf0\x90", b"\x80\x80"]]
    )
    torch.library.opcheck(torch.ops.rrgkern.byte_level_spans.default, (ids, offsets, *vocabulary))
    expected = byte_level_spans(ids, offsets, vocabulary)
    compiled = torch.compile(byte_level_spans, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(ids, offsets, vocabulary), expected)
    spread = torch.stack([ids, -ids], 1)[:, 0]
    for variant in (ids.int(), spread, ids):
        assert torch.equal(byte_level_spans(variant, offsets, vocabulary), expected)


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (torch.tensor([0, 2]), ValueError, "token_ids is 2 at token 1, wanted 0 to 1"),
        (torch.tensor([0]), ValueError, "offsets runs from 0 to 2"),
    ],
)
def test_wrong_ids_are_named(ids, error, message) -> None:
    with pytest.raises(error, match=message):
        byte_level_spans(ids, torch.tensor([0, 2]), byte_vocabulary(["a", "b"]))


REPORTS = [
    [b"\xe0", b"\x80\xa0\xa0", b"\xed\xa0\x80\xed\x9f\xbf"],
    [b"\xf0\x8f\x90\x80\x80", b"\xf4\x90", b""],
    [b"\xa9x", b"\xc2\xc2\xa9"],
]


def right_spans(reference: object) -> bool:
    ids, offsets, vocabulary = token_tensors(REPORTS)
    spans = reference.byte_level_spans_reference(ids, offsets, *vocabulary).tolist()
    return [tuple(span) for span in spans] == [s for report in REPORTS for s in by_decoder(report)]


def test_faults_of_spans_die() -> None:
    assert not survivors(reference_module, "byte_level_spans", right_spans)
