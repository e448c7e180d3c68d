"""Cut words into pieces of the encoder's vocabulary, as the package does.

The package cuts a long report into parts, adds special tokens to each, and joins the states again.
Its tokenizer of ModernBERT adds none, and nothing else in it knows: every word of
modern-radgraph-xl is read at the place of its neighbour. Scores are made with that, so it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rrgclinical.common.errors import UserError
from rrgclinical.radgraph.checkpoint import missing_encoder

# The package stops at a lone surrogate; its tokenizer deletes U+FFFD.
_SURROGATE = re.compile("[\ud800-\udfff]")
_REMEMBERED = 200_000


class WordTokenizer:
    """Word -> ids; a word is tokenized when it is first seen, and remembered."""

    def __init__(self, encoder: str | Path, download: bool) -> None:
        """encoder: folder or hub name. UserError when it holds no tokenizer."""
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(
                str(encoder), local_files_only=not download
            )
        except (OSError, ValueError, KeyError) as error:
            raise missing_encoder(str(encoder), error) from error
        dressed, bare = self._tokenizer("a")["input_ids"], self._ids(["a"])[0]
        if len(dressed) != len(bare) + 2 or dressed[1:-1] != bare:
            raise UserError(
                f"radgraph: the tokenizer of {encoder} puts {len(dressed) - len(bare)} special "
                "tokens around a text, not one on each side; pass that of RadGraph's encoder"
            )
        # transformers 4, on which the package runs, adds none where the tokenizer has no class of
        # its own, as ModernBERT's.
        generic = type(self._tokenizer) is PreTrainedTokenizerFast
        self._around = ([], []) if generic else ([dressed[0]], [dressed[-1]])
        self.pad = self._tokenizer.pad_token_id or 0
        self._seen: dict[str, list[int]] = {}

    def __call__(self, words: Sequence[str]) -> list[list[int]]:
        """The ids of every word; none for one that the tokenizer deletes."""
        if len(self._seen) > _REMEMBERED:
            self._seen.clear()
        if new := list(dict.fromkeys(word for word in words if word not in self._seen)):
            self._seen.update(zip(new, self._ids(new), strict=True))
        return [self._seen[word] for word in words]

    def sequence(self, ids: Sequence[int], row: int) -> list[int]:
        """Join `ids` in parts, each between the special tokens that the package adds.

        A part leaves room for two special tokens in `row`. Cut into rows of `row`, the result is
        what the encoder reads.
        """
        before, after = self._around
        parts = [ids[begin : begin + row - 2] for begin in range(0, len(ids), row - 2)]
        return [piece for part in parts for piece in (*before, *part, *after)]

    def vocabulary(self) -> str:
        """The tokenizer written out: equal where it reads every word alike."""
        return f"{self._around} {self._tokenizer.backend_tokenizer.to_str()}"

    def _ids(self, words: Iterable[str]) -> list[list[int]]:
        texts = [_SURROGATE.sub("\ufffd", word) for word in words]
        return self._tokenizer(texts, add_special_tokens=False)["input_ids"]


def read_order(length: int, row: int) -> list[int]:
    """List the places of the states that the package joins again, in order.

    It drops the first and the last state of every row but the outermost two, taking them for
    special tokens, which with a tokenizer that adds none they are not.
    """
    rows = -(-length // row)
    if rows <= 1:
        return list(range(length))
    inner = [place for place in range(length) if place % row not in (0, row - 1)]
    return [0, *inner[: length - 2 * rows], length - 1]


def word_places(pieces: Sequence[Sequence[int]], order: Sequence[int]) -> list[list[int]]:
    """The states that are averaged for each word.

    The package looks for a piece one place after its number, where it stands behind the special
    token at the beginning. Where there is none, that is the next piece, and past the last, none.
    """
    places, at = [], 1
    for word in pieces:
        places.append(list(order[at : at + len(word)]))
        at += len(word)
    return places
