"""Convert report text to token ids and back; re-encode edited reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tokenizers
import torch
from torch import Tensor

from rrgkern import byte_level_spans, byte_vocabulary


class ReportCodec:
    """Exact round trips between a report and its ids.

    Ids that were sampled are never decoded and encoded again: the policy may have chosen another
    segmentation than the tokenizer would, and log-probs belong to the ids.
    """

    def __init__(
        self, tokenizer: Any, eos_ids: Sequence[int], end_of_turn: int, vocabulary: int
    ) -> None:
        """vocabulary: rows of the embedding; more than the tokenizer knows in most checkpoints."""
        # A copy that takes text literally: no Unicode normalisation (decoding must give the
        # text back) and no special token read out of a report's characters.
        exact = tokenizers.Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        exact.normalizer = None
        exact.post_processor = None
        exact.encode_special_tokens = True
        self._encoder = exact
        special = {i for i, t in tokenizer.added_tokens_decoder.items() if t.special}
        self._vocabulary = byte_vocabulary(
            [exact.id_to_token(i) for i in range(vocabulary)],
            special | set(tokenizer.all_special_ids) | set(eos_ids),
        )
        self._bytes: dict[int, bytes] = {}
        self._eos = frozenset(eos_ids)
        self._end_of_turn = end_of_turn

    def encode(self, text: str) -> Tensor:
        """Ids [T] of the report, closed by the end-of-turn token."""
        return self._tensor([*self._ids(text), self._end_of_turn])

    def decode(self, ids: Tensor | Sequence[int]) -> str:
        """Decode up to the first end of turn; special tokens vanish, bad UTF-8 is U+FFFD."""
        return b"".join(map(self.token_bytes, self._report(ids))).decode(errors="replace")

    def char_spans(self, ids: Tensor | Sequence[int]) -> list[tuple[int, int]]:
        """For each id, the characters [start, end) of `decode(ids)` that its bytes touch.

        A character spread over several tokens belongs to all of them; a special token, the end of
        turn and what follows it touch none (start == end).
        """
        report = self._report(ids)
        offsets = torch.tensor([0, len(report)])
        found = byte_level_spans(self._tensor(report), offsets, self._vocabulary).tolist()
        end = found[-1][1] if found else 0
        return [(a, b) for a, b in found] + [(end, end)] * (len(ids) - len(report))

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
        if not 0 <= first_changed_char <= min(len(old), len(new_text)):
            raise ValueError(
                f"first_changed_char is {first_changed_char}, the texts have {len(old)} and "
                f"{len(new_text)} characters: give an index within both"
            )
        if old[:first_changed_char] != new_text[:first_changed_char]:
            at = next(i for i in range(first_changed_char) if old[i] != new_text[i])
            raise ValueError(
                f"the texts differ at character {at}, before first_changed_char "
                f"{first_changed_char}: give the first character that changed"
            )
        keep = kept_chars = at = 0
        begins = _character_begins(b"".join(map(self.token_bytes, report)))
        for k, token in enumerate(report, start=1):
            at += len(self.token_bytes(token))
            # A token that stops inside a character is kept only with the one that completes it.
            if at in begins:
                if begins[at] > first_changed_char:
                    break
                keep, kept_chars = k, begins[at]
        return self._tensor([*report[:keep], *self._ids(new_text[kept_chars:]), self._end_of_turn])

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for; empty for a special token."""
        found = self._bytes.get(token)
        if found is None:
            begin, end = self._vocabulary.offsets[token : token + 2].tolist()
            found = bytes(self._vocabulary.bytes[begin:end].tolist())
            self._bytes[token] = found
        return found

    def _report(self, ids: Tensor | Sequence[int]) -> list[int]:
        listed = ids.tolist() if isinstance(ids, Tensor) else list(ids)
        end = next((k for k, i in enumerate(listed) if i in self._eos), len(listed))
        return listed[:end]

    def _ids(self, text: str) -> list[int]:
        return self._encoder.encode(text, add_special_tokens=False).ids

    @staticmethod
    def _tensor(ids: list[int]) -> Tensor:
        return torch.tensor(ids, dtype=torch.int64)


def _character_begins(data: bytes) -> dict[int, int]:
    """Byte offset to character index, where a character of the decoded data begins (and its end).

    As in `data.decode(errors="replace")`, each maximal run of bad bytes is one character.
    """
    begins: dict[int, int] = {}
    at = 0
    while at < len(data):
        try:
            good, bad = data[at:].decode(), 0
        except UnicodeDecodeError as error:
            good, bad = data[at : at + error.start].decode(), error.end - error.start
        for character in good:
            begins[at] = len(begins)
            at += len(character.encode())
        if bad:
            begins[at] = len(begins)
            at += bad
    begins[len(data)] = len(begins)
    return begins
