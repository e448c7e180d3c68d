"""The bytes behind the tokens of a byte-level BPE vocabulary."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class ByteVocabulary(NamedTuple):
    """The byte string of every token id, ragged; ids without text hold no bytes.

    Attributes:
        bytes: [total] uint8.
        offsets: [V+1] int64, token v holds bytes [offsets[v], offsets[v+1]).
    """

    bytes: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, strings: Sequence[builtins.bytes]) -> ByteVocabulary:
        """Lay out the byte string of every id in order, for any kind of tokenizer."""
        lengths = torch.tensor([0, *map(len, strings)])
        data = torch.frombuffer(bytearray(b"".join([*strings, b"\0"])), dtype=torch.uint8)
        return cls(data[:-1], lengths.cumsum(0))  # no buffer may be empty

    def text(self, token_ids: Tensor) -> str:
        """Decode ids to the text whose characters `byte_level_spans` counts.

        Invalid UTF-8 reads as U+FFFD, one for each maximal ill-formed part (Unicode 15, 3.9), as
        Python's `decode(errors="replace")` has it. Nothing is cleaned up or normalised.
        """
        offsets, data = self.offsets, self.bytes
        parts = [data[offsets[v] : offsets[v + 1]] for v in token_ids.tolist()]
        return bytes(torch.cat([data[:0], *parts]).tolist()).decode("utf-8", errors="replace")


def byte_vocabulary(tokens: Sequence[str | None], special: Collection[int] = ()) -> ByteVocabulary:
    """Read the tokens of a byte-level BPE (GPT-2, Qwen2), one byte a character.

    Args:
        tokens: the vocabulary's own spelling of every id in order ("Ġheart"), as
            `tokenizer.convert_ids_to_tokens(range(V))` gives it; None for an id without a token.
        special: ids that stand for no text (`tokenizer.all_special_ids` and image placeholders).

    Raises:
        ValueError: a token that is not special holds a character outside the byte alphabet.
    """
    alphabet = byte_alphabet()
    strings = []
    skipped = set(special)
    for v, token in enumerate(tokens):
        if token is None or v in skipped:
            strings.append(b"")
            continue
        try:
            strings.append(bytes(alphabet[character] for character in token))
        except KeyError as error:
            raise ValueError(
                f"token {v} {token!r} holds {error.args[0]!r}, no character of the byte-level "
                "alphabet: list the id as special, or use the tokenizer's own offsets"
            ) from None
    return ByteVocabulary.of(strings)


def byte_alphabet() -> dict[str, int]:
    """Map each byte to its character: itself where it prints, else U+0100 up."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    alphabet = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in printable]
    return alphabet | {chr(0x100 + n): byte for n, byte in enumerate(others)}
