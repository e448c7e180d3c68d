"""Round trips of reports, exact for every text and for every sequence of sampled ids."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rrgpolicy.model.common import REPORTS, tiny_policy

POLICY = tiny_policy()
CODEC = POLICY.codec
VOCABULARY = POLICY.config.text_config.vocab_size

TEXT = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from([*REPORTS, "é", "e\u0301", " ", "\n", "<|im_end|>", "5.2 cm", "🫁"])
    ).map("".join),
)
IDS = st.lists(st.integers(0, VOCABULARY - 1), max_size=40)


@given(TEXT)
@settings(max_examples=200, deadline=None)
def test_decode_inverts_encode(text: str) -> None:
    ids = POLICY.codec.encode(text)
    assert ids.dtype == torch.int64
    assert POLICY.codec.decode(ids) == text
    assert (ids == POLICY.end_of_turn).nonzero().tolist() == [[len(ids) - 1]]


def test_plain_reports_get_the_tokenizers_own_ids() -> None:
    for report in REPORTS:
        ids = POLICY.tokenizer(report)["input_ids"]
        assert POLICY.codec.encode(report).tolist() == [*ids, POLICY.end_of_turn]


@given(IDS)
@settings(max_examples=200, deadline=None)
def test_any_ids_decode_as_the_tokenizer_decodes_them(ids: list[int]) -> None:
    ends = [k for k, i in enumerate(ids) if i in POLICY.eos_ids]
    kept = ids[: ends[0]] if ends else ids
    wanted = POLICY.tokenizer.decode(
        kept, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    assert POLICY.codec.decode(ids) == wanted


@given(IDS)
@settings(max_examples=200, deadline=None)
def test_spans_hold_the_bytes_of_their_tokens(ids: list[int]) -> None:
    text = POLICY.codec.decode(ids)
    spans = POLICY.codec.char_spans(ids)
    assert len(spans) == len(ids)
    covered = 0
    for token, (start, end) in zip(ids, spans, strict=True):
        assert 0 <= start <= end <= len(text)
        assert start <= covered <= max(end, covered), "spans leave no character out"
        covered = max(covered, end)
        piece = CODEC.token_bytes(token)
        if start == end:
            continue
        # Unless a character is split between tokens or bad, the span's text is the token's.
        if "�" not in text[start:end] and len(text[start:end].encode()) == len(piece):
            assert text[start:end].encode() == piece
    assert covered == len(text)


@given(IDS, TEXT, st.data())
@settings(max_examples=300, deadline=None)
def test_reencoding_gives_the_new_text_and_keeps_the_beginning(
    ids: list[int], tail: str, data: st.DataObject
) -> None:
    old = POLICY.codec.decode(ids)
    first_changed = data.draw(st.integers(0, len(old)))
    new = old[:first_changed] + tail
    result = POLICY.codec.reencode_from(torch.tensor(ids, dtype=torch.int64), new, first_changed)
    assert POLICY.codec.decode(result) == new
    assert result[-1] == POLICY.end_of_turn
    ends = [k for k, i in enumerate(ids) if i in POLICY.eos_ids]
    report = ids[: ends[0]] if ends else ids
    # The longest beginning of whole tokens and whole characters before the change is kept.
    keep = max(
        k
        for k in range(len(report) + 1)
        if len(POLICY.codec.decode(report[:k])) <= first_changed
        and POLICY.codec.decode(report[:k]) + POLICY.codec.decode(report[k:]) == old
    )
    assert result[:keep].tolist() == report[:keep]


def test_reencoding_keeps_a_segmentation_the_tokenizer_would_not_choose() -> None:
    text = "Lungs are clear. No pleural effusion."
    letters = [i for c in text for i in POLICY.codec.encode(c).tolist()[:-1]]
    usual = POLICY.codec.encode(text)
    assert len(letters) == len(text) > len(usual)
    new = "Lungs are clear. Small left pleural effusion."
    result = POLICY.codec.reencode_from(torch.tensor(letters), new, 17).tolist()
    assert result[:17] == letters[:17]
    assert result[17:] == POLICY.codec.encode("Small left pleural effusion.").tolist()


def test_reencoding_starts_before_a_token_that_the_change_cuts() -> None:
    ids = POLICY.codec.encode("No pleural effusion.")
    spans = POLICY.codec.char_spans(ids)
    cut = next(k for k, (start, end) in enumerate(spans) if end - start > 2)
    inside = spans[cut][0] + 1
    text = POLICY.codec.decode(ids)
    result = POLICY.codec.reencode_from(ids, text[:inside] + "X", inside)
    assert result[:cut].tolist() == ids[:cut].tolist()
    assert result[cut] != ids[cut]


def test_a_wrong_first_change_is_refused() -> None:
    ids = POLICY.codec.encode("No effusion.")
    with pytest.raises(ValueError, match="differ at character 1"):
        POLICY.codec.reencode_from(ids, "Na effusion.", 5)
    with pytest.raises(ValueError, match="first_changed_char is 99"):
        POLICY.codec.reencode_from(ids, "No effusion.", 99)
