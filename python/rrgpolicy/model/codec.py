"""Convert report text to token ids and back; re-encode edited reports.

Two kinds of tokenizers are served. Byte-level BPE (GPT-2, Qwen, Llama 3) spells a byte by a
character. Those like SentencePiece's (Llama 2, Gemma, LLaVA) spell text as it is, a blank as
U+2581, a byte that no token has as `<0xAB>`, and some put a blank before a text, which decoding
takes away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import tokenizers
import torch
from tokenizers import normalizers, pre_tokenizers
from torch import Tensor

from rrgclinical.common import json_reader
from rrgkern import ByteVocabulary, byte_level_spans, byte_vocabulary

BLANK = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
# No UTF-8 has the others.
_BYTES = (*range(0xC0), *range(0xC2, 0xF5))
# With each byte that begins a character, and each that goes on with one.
CHARACTERS = "".join(
    map(chr, (*range(0x80, 0x800), *range(0x800, 0xD800, 0x800), 0xE000, 0xF000))
) + "".join(map(chr, (0x10000, 0x40000, 0x80000, 0xC0000, 0x100000)))
SAMPLES = (
    "Heart size is normal.\n\n1. No pleural effusion;  a 5.2 cm nodule (series 4/12).",
    "<think>\nIt's clear.\n</think>\n<report>No acute disease.</report>",
    "caf\u00e9 e\u0301 <0x41> <s>\t\U0001fac1",
)
MEND = "name a model whose tokenizer is byte-level BPE, or SentencePiece's with byte fallback"


class ReportCodec:
    """Exact round trips between a report and its ids.

    Ids that were sampled are never decoded and encoded again: the policy may have chosen another
    segmentation than the tokenizer would, and log-probs belong to the ids.
    """

    def __init__(
        self,
        tokenizer: Any,
        eos_ids: Sequence[int],
        end_of_turn: int,
        vocabulary: int,
        special: Collection[int],
    ) -> None:
        """vocabulary: rows of the embedding; more than the tokenizer knows in most checkpoints.
        special: ids that stand for no text, `Policy.special_ids`.

        Raises ValueError for a tokenizer whose `decode()` does not agree, see `Spelling.hold`.
        """
        self._spelling = spelling(tokenizer, special, vocabulary)
        self._spelling.hold(tokenizer)
        self._eos = frozenset(eos_ids)
        self._end_of_turn = end_of_turn

    def encode(self, text: str) -> Tensor:
        """Ids [T] of the report, closed by the end-of-turn token."""
        return self._tensor([*self._spelling.whole(text), self._end_of_turn])

    def decode(self, ids: Tensor | Sequence[int]) -> str:
        """Decode up to the first end of turn; special tokens vanish, bad UTF-8 is U+FFFD."""
        return self._spelling.text(self._spelling.join(self._report(ids)))

    def char_spans(self, ids: Tensor | Sequence[int]) -> list[tuple[int, int]]:
        """For each id, the characters [start, end) of `decode(ids)` that its bytes touch.

        A character spread over several tokens belongs to all of them; a special token, the end of
        turn and what follows it touch none (start == end).
        """
        report = self._report(ids)
        offsets = torch.tensor([0, len(report)])
        vocabulary = self._spelling.vocabulary
        spans = byte_level_spans(self._tensor(report), offsets, vocabulary).tolist()
        first = self._spelling.stripped(self._spelling.join(report))
        spans = [(max(a - first, 0), max(b - first, 0)) for a, b in spans]
        end = spans[-1][1] if spans else 0
        return spans + [(end, end)] * (len(ids) - len(report))

    def reencode_from(
        self, ids: Tensor | Sequence[int], new_text: str, first_changed_char: int
    ) -> Tensor:
        """Ids of an edited report that keep the sampled ids of the untouched beginning.

        Kept are the leading tokens that lie wholly before `first_changed_char` and end with a
        whole character; the rest of `new_text` is encoded anew and closed by the end-of-turn
        token (EditGRPO). `decode` of the result is `new_text`.

        Raises:
            ValueError: `new_text` differs from the sampled text before `first_changed_char`.
        """
        report = self._report(ids)
        old = self.decode(report)
        same = old[:first_changed_char] == new_text[:first_changed_char]
        if not (same and 0 <= first_changed_char <= min(len(old), len(new_text))):
            raise ValueError(
                f"first_changed_char is {first_changed_char}, and texts of {len(old)} and "
                f"{len(new_text)} characters differ before: give the first that changed"
            )
        keep = kept_chars = 0
        begin = len(old)  # of the next token that has a character
        for k, (start, end) in reversed([*enumerate(self.char_spans(report), start=1)]):
            # A token that stops inside a character is kept only with the one that completes it.
            if end <= min(begin, first_changed_char):
                keep, kept_chars = k, end
                break
            begin = start if start < end else begin
        begun = any(map(self.token_bytes, report[:keep]))
        encode = self._spelling.ids if begun else self._spelling.whole
        return self._tensor([*report[:keep], *encode(new_text[kept_chars:]), self._end_of_turn])

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for; empty for a special token."""
        return self._spelling.join([token])

    def _report(self, ids: Tensor | Sequence[int]) -> list[int]:
        listed = ids.tolist() if isinstance(ids, Tensor) else list(ids)
        end = next((k for k, i in enumerate(listed) if i in self._eos), len(listed))
        return listed[:end]

    @staticmethod
    def _tensor(ids: list[int]) -> Tensor:
        return torch.tensor(ids, dtype=torch.int64)


@dataclass(frozen=True)
class Spelling:
    """Tokens as bytes, and back.

    vocabulary: the bytes of every id, none for special ones; encoder: takes text literally, without
    normalisation or special tokens; first_blank: a text begins with a blank that decoding strips.
    """

    vocabulary: ByteVocabulary
    encoder: tokenizers.Tokenizer
    first_blank: bool

    @cached_property
    def _strings(self) -> list[bytes]:
        data, offsets = bytes(self.vocabulary.bytes.numpy()), self.vocabulary.offsets.tolist()
        return [data[a:b] for a, b in pairwise(offsets)]

    @cached_property
    def _of_byte(self) -> dict[int, int]:
        return {s[0]: v for v, s in reversed([*enumerate(self._strings)]) if len(s) == 1}

    def join(self, ids: Sequence[int]) -> bytes:
        return b"".join([self._strings[token] for token in ids])

    def ids(self, text: str) -> list[int]:
        """Encode a piece of text, without a first blank; `join` gives its bytes.

        Where the tokenizer reads a character otherwise, as U+2581 for a blank, it becomes bytes.
        """
        if not text:
            return []
        ids: list[int] = self.encoder.encode(text, add_special_tokens=False).ids
        if self.join(ids) == text.encode():
            return ids
        if len(text) == 1:
            return [self._of_byte[byte] for byte in text.encode()]
        half = len(text) // 2
        return self.ids(text[:half]) + self.ids(text[half:])

    def whole(self, text: str) -> list[int]:
        """Encode a whole text, with the first blank where the tokenizer has one."""
        return self.ids(" " * (self.first_blank and bool(text)) + text)

    def text(self, data: bytes) -> str:
        """Decode the bytes of a whole text; bad UTF-8 is U+FFFD."""
        return data[self.stripped(data) :].decode(errors="replace")

    def stripped(self, data: bytes) -> int:
        """Count the bytes of a first blank, no part of the text: 0 or 1."""
        return int(self.first_blank and data.startswith(b" "))

    def hold(self, tokenizer: Any) -> None:
        """Hold every token and some texts against the tokenizer's `decode()`.

        Raises ValueError for the first that it decodes otherwise, and for a byte without a token.
        """
        missing = [byte for byte in _BYTES if byte not in self._of_byte]
        if missing:
            raise ValueError(f"no token spells the byte 0x{missing[0]:02X}; {MEND}")

        def read(ids: Sequence[int]) -> str:
            return str(
                tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            )

        def alike(ids: Sequence[int]) -> bool:
            return read(ids) == self.join(ids).decode(errors="replace")

        start = self._of_byte[ord("a")]  # a first blank is decoded otherwise
        spoken = [v for v, s in enumerate(self._strings) if s and (len(s) > 1 or s.isascii())]
        if not alike([start, *spoken]):
            odd = next((v for v in spoken if not alike([start, v])), spoken[0])
            raise ValueError(
                f"token {odd} is {self.join([odd])!r} by its spelling, and decode() reads "
                f"{read([start, odd])[1:]!r}; {MEND}"
            )
        characters = [start, *(self._of_byte[byte] for byte in CHARACTERS.encode())]
        for ids in (characters, *map(self.whole, SAMPLES)):
            text = self.text(self.join(ids))
            if read(ids) != text:
                raise ValueError(f"decode() reads {read(ids)[:60]!r} of {text[:60]!r}; {MEND}")


def spelling(tokenizer: Any, special: Collection[int], rows: int) -> Spelling:
    """Read the spelling of a fast tokenizer of transformers.

    special: ids without text; rows: ids of the embedding, of which the last may have no token.

    Raises ValueError for a tokenizer of another kind.
    """
    backend = tokenizer.backend_tokenizer
    steps = _steps(backend.decoder)
    exact = tokenizers.Tokenizer.from_str(backend.to_str())
    exact.post_processor = None
    exact.encode_special_tokens = True
    exact.pre_tokenizer = _without_prefix(backend.pre_tokenizer)
    tokens = [exact.id_to_token(i) for i in range(rows)]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        exact.normalizer = None
        return Spelling(byte_vocabulary(tokens, special), exact, first_blank=False)
    if not any(_gives_blanks(step) for step in steps):
        raise ValueError(f"its decoder is {' + '.join(kinds)}; {MEND}")
    exact.normalizer = normalizers.Replace(" ", BLANK)
    by_byte = "ByteFallback" in kinds
    strings = []
    for token_id, token in enumerate(tokens):
        byte = _BYTE.fullmatch(token or "") if by_byte else None
        if token is None or token_id in special:
            strings.append(b"")
        else:
            strings.append(
                bytes([int(byte[1], 16)]) if byte else token.replace(BLANK, " ").encode()
            )
    return Spelling(ByteVocabulary.of(strings), exact, any(map(_strips, steps)))


def _steps(part: Any) -> list[dict[str, Any]]:
    """The steps of a decoder as its file has them."""
    if part is None:
        return [{"type": "none"}]
    state: dict[str, Any] = json_reader.parse(part.__getstate__(), dict)
    steps: list[dict[str, Any]] = state.get("decoders", [state])
    return steps


def _gives_blanks(step: dict[str, Any]) -> bool:
    if step["type"] == "Metaspace":
        return bool(step["replacement"] == BLANK)
    return step["type"] == "Replace" and (step["pattern"], step["content"]) == (
        {"String": BLANK},
        " ",
    )


def _strips(step: dict[str, Any]) -> bool:
    if step["type"] == "Metaspace":
        return bool(step["prepend_scheme"] != "never")
    return step["type"] == "Strip" and step["content"] == " " and step["start"] > 0


def _without_prefix(part: Any) -> Any:
    """A pre-tokenizer that puts no blank before a text; a report's beginning is ours to know."""
    if part is None:
        return None
    state = json_reader.parse(part.__getstate__(), dict)
    for step in state.get("pretokenizers", [state]):
        if step["type"] == "Metaspace":
            step["prepend_scheme"] = "never"
        if step["type"] == "ByteLevel":
            step["add_prefix_space"] = False
    plain = pre_tokenizers.ByteLevel()
    plain.__setstate__(json.dumps(state).encode())
    return plain
