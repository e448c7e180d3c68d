"""Convert report text to token ids and back; re-encode edited reports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from rrgkern import byte_level_spans
from rrgpolicy.model.spelling import spelling


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

    @property
    def kind(self) -> str:
        """Name the kind of tokenizer, see `spelling`."""
        return self._spelling.kind

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
        data = self._spelling.join(report)
        first = self._spelling.stripped(data)
        begins = _character_begins(data)
        for k, token in enumerate(report, start=1):
            at += len(self.token_bytes(token))
            # A token that stops inside a character is kept only with the one that completes it.
            if at in begins:
                if begins[at] - first > first_changed_char:
                    break
                keep, kept_chars = k, max(begins[at] - first, 0)
        begun = any(map(self.token_bytes, report[:keep]))
        encode = self._spelling.ids if begun else self._spelling.whole
        return self._tensor([*report[:keep], *encode(new_text[kept_chars:]), self._end_of_turn])

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for; empty for a special token."""
        return self._spelling.of(token)

    def _report(self, ids: Tensor | Sequence[int]) -> list[int]:
        listed = ids.tolist() if isinstance(ids, Tensor) else list(ids)
        end = next((k for k, i in enumerate(listed) if i in self._eos), len(listed))
        return listed[:end]

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
