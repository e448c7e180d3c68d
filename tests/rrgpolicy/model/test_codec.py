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


@given(IDS)
@settings(max_examples=200, deadline=None)
def test_any_ids_decode_as_the_tokenizer_decodes_them(ids: list[int]) -> None:
    ends = [k for k, i in enumerate(ids) if i in POLICY.eos_ids]
    kept = ids[: ends[0]] if ends else ids
    wanted = POLICY.tokenizer.decode(
        kept, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    assert POLICY.codec.decode(ids) == wanted


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
