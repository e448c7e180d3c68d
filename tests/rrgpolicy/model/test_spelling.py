"""Round trips on tokenizers of each kind: edits, spans and blocks are exact on all of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

from rrgpolicy.model.codec import ReportCodec
from tests.rrgpolicy.model.common import REPORTS, tiny_policy
from tests.rrgpolicy.model.tokenizers_of_kinds import (
    BLANK,
    KINDS,
    SPECIAL,
    codec_of,
    kind_of,
    tokenizer_of,
)

ODD = (
    *(BLANK, f" {BLANK}x", "<0x41>", "<0xE2>", "</s>", "<start_of_image>", "<think>\na\n</think>"),
    *("é", "e\u0301", "ﬁ", " ", "  ", "\n\n", "\t", "5.2 cm", "\U0001fac1", "<unk>", "\u00a0"),
)
TEXT = st.one_of(st.text(max_size=30), st.lists(st.sampled_from([*REPORTS, *ODD])).map("".join))
NAMES = st.sampled_from([*KINDS])
IDS = st.lists(st.integers(0, 10_000), max_size=30)


def drawn(kind: str, numbers: list[int]) -> list[int]:
    """Ids as a policy may sample them, segmentations that no tokenizer chooses among them."""
    tokenizer, _ = kind_of(kind)
    return [number % len(tokenizer) for number in numbers]


@given(NAMES, TEXT)
@settings(max_examples=300, deadline=None)
def test_decode_inverts_encode_of_any_text(kind: str, text: str) -> None:
    tokenizer, codec = kind_of(kind)
    ids = codec.encode(text).tolist()
    assert codec.decode(ids) == text
    shown = {tokenizer.convert_tokens_to_ids(t) for t in SPECIAL} - {tokenizer.unk_token_id}
    assert [i for i in ids if i in shown] == ids[-1:] == [tokenizer.eos_token_id]


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_has_the_tokenizers_own_ids(kind: str) -> None:
    tokenizer, codec = kind_of(kind)
    for report in REPORTS:
        # GPT-2's blank before a text is none of the text, and decoding leaves it there
        first = "" if kind != "byte_level" else " "
        own = tokenizer(first + report, add_special_tokens=False)["input_ids"]
        ids = codec.encode(first + report).tolist()[:-1]
        assert ids == own
        assert tokenizer.decode(ids) == first + report


@given(NAMES, IDS)
@settings(max_examples=200, deadline=None)
def test_spans_cover_the_text_with_the_bytes_of_their_tokens(kind: str, numbers: list[int]) -> None:
    _, codec = kind_of(kind)
    ids = drawn(kind, numbers)
    text, spans, covered = codec.decode(ids), codec.char_spans(ids), 0
    for token, (start, end) in zip(ids, spans, strict=True):
        assert 0 <= start <= end <= len(text)
        assert start <= covered <= max(end, covered), "spans leave no character out"
        covered = max(covered, end)
        piece, part = codec.token_bytes(token), text[start:end]
        if "\ufffd" not in part and len(part.encode()) == len(piece):
            assert part.encode() == piece
    assert covered == len(text)


@given(NAMES, IDS, TEXT, st.data())
@settings(max_examples=300, deadline=None)
def test_an_edit_gives_the_new_text_and_keeps_the_sampled_beginning(kind, numbers, tail, data):
    tokenizer, codec = kind_of(kind)
    ids = drawn(kind, numbers)
    old = codec.decode(ids)
    change = data.draw(st.integers(0, len(old)))
    new = old[:change] + tail
    result = codec.reencode_from(torch.tensor(ids, dtype=torch.int64), new, change).tolist()
    assert codec.decode(result) == new and result[-1] == tokenizer.eos_token_id
    report = ids[: ids.index(result[-1])] if result[-1] in ids else ids
    whole = b"".join(map(codec.token_bytes, report))
    lead = len(whole.decode(errors="replace")) - len(codec.decode(report))  # the first blank

    def is_kept(k: int) -> bool:
        """Whole characters, and none behind the change."""
        data = b"".join(map(codec.token_bytes, report[:k]))
        begin, rest = (part.decode(errors="replace") for part in (data, whole[len(data) :]))
        return len(begin) - lead <= change and begin + rest == whole.decode(errors="replace")

    keep = max(k for k in range(len(report) + 1) if is_kept(k))
    assert result[:keep] == report[:keep]


def test_an_edit_in_the_middle_goes_on_without_a_first_blank() -> None:
    text, new = REPORTS[1], "Lungs are clear. Small left pleural effusion."
    for kind in KINDS:
        _, codec = kind_of(kind)
        ids = codec.encode(text)
        result = codec.reencode_from(ids, new, 16).tolist()
        spans = codec.char_spans(ids)
        before = sum(end <= 16 for _, end in spans[:-1])
        assert result[:before] == ids[:before].tolist(), kind
        assert result == codec.encode(new).tolist(), f"{kind}: as the tokenizer would go on"


def _read_otherwise(tokenizer: Any) -> None:
    steps = [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Replace("eff", "aff")]
    tokenizer.backend_tokenizer.decoder = decoders.Sequence([*steps, decoders.Fuse()])


def _without_a_byte(tokenizer: Any) -> None:
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = spec["model"]["vocab"]
    vocabulary["<0x0a>"] = vocabulary.pop("<0x0A>")
    model = models.BPE(vocabulary, [tuple(m) for m in spec["model"]["merges"]], byte_fallback=True)
    tokenizer.backend_tokenizer.model = model


def _as_bert(tokenizer: Any) -> None:
    tokenizer.backend_tokenizer.decoder = decoders.WordPiece()


def _by_no_byte(tokenizer: Any) -> None:
    tokenizer.backend_tokenizer.decoder = decoders.Metaspace()


def _bytes_swapped(tokenizer: Any) -> None:
    """Reads what lies beyond ASCII as one byte further."""
    steps = [decoders.Replace(BLANK, " "), decoders.Replace("<0xA9>", "<0xAA>")]
    last = [decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.backend_tokenizer.decoder = decoders.Sequence([*steps, *last])


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (_read_otherwise, r"token \d+ is b'[^']*eff[^']*' by its spelling, and decode\(\) reads"),
        (_without_a_byte, "no token spells the byte 0x0A; name a model whose tokenizer is byte-"),
        (_as_bert, r"its decoder is WordPiece; name a model"),
        (_by_no_byte, r"decode\(\) reads|no token spells"),
        (_bytes_swapped, r"decode\(\) reads"),
    ],
)
def test_a_table_that_decode_contradicts_is_refused_at_once(spoil: Any, line: str) -> None:
    tokenizer = tokenizer_of("gemma")
    spoil(tokenizer)
    with pytest.raises(ValueError, match=line):
        codec_of(tokenizer)


def test_no_token_of_an_image_is_written_for_text_that_reads_as_one() -> None:
    """Also where the tokenizer has it among ordinary tokens."""
    for kind in KINDS:
        tokenizer = tokenizer_of(kind)
        tokenizer.backend_tokenizer.add_tokens(["[IMG]"])
        shown = tokenizer.convert_tokens_to_ids("[IMG]")
        special = [shown, *tokenizer.convert_tokens_to_ids([*SPECIAL])]
        codec = ReportCodec(tokenizer, [3], 3, len(tokenizer), special)
        assert codec.decode(codec.encode("see [IMG] there")) == "see [IMG] there", kind
        assert shown not in codec.encode("see [IMG] there").tolist(), kind


# Round trips of reports, exact for every text and for every sequence of sampled ids.
POLICY = tiny_policy()
VOCABULARY = POLICY.config.text_config.vocab_size

REPORT_IDS = st.lists(st.integers(0, VOCABULARY - 1), max_size=40)


@example([*POLICY.codec.encode("No").tolist(), *POLICY.codec.encode("edema.").tolist()])
@given(REPORT_IDS)
@settings(max_examples=200, deadline=None)
def test_any_ids_decode_as_the_tokenizer_decodes_them(ids: list[int]) -> None:
    ends = [k for k, i in enumerate(ids) if i in POLICY.eos_ids]
    kept = ids[: ends[0]] if ends else ids
    wanted = POLICY.tokenizer.decode(
        kept, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    assert POLICY.codec.decode(ids) == wanted


def test_a_token_that_ends_inside_a_character_is_kept_with_the_one_that_completes_it() -> None:
    tokenizer = tokenizer_of("byte_level")
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary, merges = spec["model"]["vocab"], [*map(tuple, spec["model"]["merges"])]
    # in the place of the last: the second byte of é, and an a
    vocabulary["\u00a9a"] = most = vocabulary.pop("".join(merges[-1]))
    model = models.BPE(vocabulary, [*merges[:-1], ("\u00a9", "a")])
    tokenizer.backend_tokenizer.model = model
    codec = codec_of(tokenizer)
    ids = [*codec.encode("No ").tolist()[:-1], vocabulary["\u00c3"], most]
    assert codec.decode(ids).endswith("\u00e9a")
    new = codec.decode(ids)[:-1] + "b"
    assert codec.decode(codec.reencode_from(ids, new, len(new) - 1)) == new


def test_a_wrong_first_change_is_refused() -> None:
    ids = POLICY.codec.encode("No effusion.")
    with pytest.raises(ValueError, match="first_changed_char is 5"):
        POLICY.codec.reencode_from(ids, "Na effusion.", 5)
    with pytest.raises(ValueError, match="first_changed_char is 99"):
        POLICY.codec.reencode_from(ids, "No effusion.", 99)
