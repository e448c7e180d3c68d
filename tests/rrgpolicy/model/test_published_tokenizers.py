"""Published tokenizers take real reports to ids and back, and know the end of a turn."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from rrgpolicy.model.codec import ReportCodec
from rrgpolicy.model.policy import Policy
from rrgpolicy.model.template import end_of_turn
from tests.real_data import IU_XRAY
from tests.rrgpolicy import published
from tests.rrgpolicy.model.common import REPORTS

ROOT = Path(__file__).parents[3]
# What the chat template writes behind an answer; Llama 2's package has none.
ENDS = {"qwen3": "<|im_end|>", "gemma3": "<end_of_turn>", "llama3": "<|eot_id|>", "llama2": None}
SHOWN = {
    "qwen3": {"<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>"}
    | {"<|video_pad|>"},
    "gemma3": {"<start_of_image>", "<end_of_image>", "<image_soft_token>"},
    "llama2": set(),
    "llama3": set(),
}


@lru_cache(maxsize=4)
def opened(name: str) -> tuple[Any, ReportCodec, list[int]]:
    """The tokenizer, its codec and the ids that are never sampled; skips where it is absent."""
    folder = published.fetched(name)
    if folder is None:
        pytest.skip(published.absent(name))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    end, rows = tokenizer.eos_token_id, len(tokenizer) + 7
    held: Any = SimpleNamespace(
        config=SimpleNamespace(), tokenizer=tokenizer, eos_ids=(end,), embedding_shape=(rows, 8)
    )
    held.never_sampled = Policy.never_sampled.func(held)  # type: ignore[attr-defined]
    special = Policy.special_ids.func(held)  # type: ignore[attr-defined]
    return tokenizer, ReportCodec(tokenizer, [end], end, rows, special), [*held.never_sampled]


@pytest.mark.parametrize("name", ENDS)
def test_reports_and_edits_are_exact(name: str) -> None:
    tokenizer, codec, never = opened(name)
    assert {*tokenizer.convert_ids_to_tokens(never)} == SHOWN[name]
    if tokenizer.chat_template is not None:
        found = end_of_turn(tokenizer)
        assert found is not None and tokenizer.convert_ids_to_tokens(found) == ENDS[name]
    odd = [f"{token} in a report" for token in tokenizer.all_special_tokens[:12]]
    for text in (*REPORTS, *odd, " \u2581<0x41>\n\n", "<think>a</think>\n<report>b</report>"):
        ids = codec.encode(text)
        assert codec.decode(ids) == text
        assert not {*ids[:-1].tolist()} & {*tokenizer.all_special_ids}, text
        spans = codec.char_spans(ids)
        assert "".join(text[a:b] for a, b in spans) == text or not text.isascii()
        change = len(text) // 2
        edited = codec.reencode_from(ids, text[:change] + "n edit.", change)
        assert codec.decode(edited) == text[:change] + "n edit."
        before = sum(b <= change for _, b in spans[:-1])
        assert torch.equal(edited[:before], ids[:before]) or not text.isascii()


@pytest.mark.realdata
@pytest.mark.skipif(not IU_XRAY.is_dir(), reason=f"no real data at {IU_XRAY}; set RRG_DATA")
@pytest.mark.parametrize("name", ENDS)
def test_every_report_of_iu_xray_makes_the_round_trip(name: str) -> None:
    tokenizer, codec, _ = opened(name)
    lines = (IU_XRAY / "sections.jsonl").read_text().splitlines()
    texts = [json.loads(line)["findings"] for line in lines]
    assert len(texts) == 2365
    own = tokenizer(texts, add_special_tokens=False)["input_ids"]
    for text, theirs in zip(texts, own, strict=True):
        ids = codec.encode(text)
        assert codec.decode(ids) == text
        assert ids[:-1].tolist() == theirs, text
