"""Weights for the tokens of sampled reports (DiTPO), and the bytes behind their tokens."""

from __future__ import annotations

import builtins
import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.checks import (
    check_layout,
    check_number,
    check_record,
    check_tensors,
    values_may_be_read,
)
from rrgkern.token_weights.op import byte_level_spans_op, span_max_op, tfidf_weights_op


def tfidf_weights(
    token_ids: Tensor, offsets: Tensor, group_offsets: Tensor, *, alpha: float = 4.0
) -> Tensor:
    """Weigh tokens by how much they single out their report (DiTPO eq. 7, 8).

    tf = count of the token in its report / length of the report; idf = ln(reports of the group /
    reports of the group that hold the token); w = 1 + alpha · tf · idf. A token that every report
    holds weighs exactly 1.

    Args:
        token_ids: [N] int32 or int64, the scored tokens of S reports one after another.
        offsets: [S+1] int64, where reports begin in `token_ids`.
        group_offsets: [B+1] int64, where groups begin in the reports.
        alpha: strength, 4 in the paper.

    Returns:
        [N] fp32, no gradient.

    Raises:
        TypeError: a tensor has the wrong dtype.
        ValueError: shapes or devices disagree, or offsets do not cut their rows. Values on a GPU
            are checked under RRGKERN_CHECK=1 only.
    """
    check_tensors(token_ids=token_ids, offsets=offsets, group_offsets=group_offsets)
    check_number("alpha", alpha)
    if not -math.inf < alpha < math.inf:
        raise ValueError(f"alpha is {alpha}, wanted a finite number")
    check_layout("token_ids", token_ids, (torch.int32, torch.int64), (-1,), "token_ids", token_ids)
    check_layout("offsets", offsets, (torch.int64,), (-1,), "token_ids", token_ids)
    check_layout("group_offsets", group_offsets, (torch.int64,), (-1,), "token_ids", token_ids)
    # On the host, for every device: no two libraries agree on the last bit of a logarithm.
    counts = torch.arange(len(offsets), dtype=torch.float64, device="cpu")
    logs = counts.log().to(token_ids.device)
    weights: Tensor = tfidf_weights_op(token_ids.long(), offsets, group_offsets, logs, float(alpha))
    return weights


def span_max(
    saliency: Tensor,
    piece_spans: Tensor,
    piece_offsets: Tensor,
    token_spans: Tensor,
    token_offsets: Tensor,
) -> Tensor:
    """Carry the saliency of a labeller's word pieces over to the policy's tokens (DiTPO 3.3).

    Each token takes the largest saliency among the pieces of its report with which it shares a
    character, 0 where it shares none: white space, an empty span, text beyond the labeller's
    last piece. Its weight is then 1 + beta times that (eq. 12).

    Args:
        saliency: [M] fp32, fp16, bf16 or fp64, finite and >= 0: gradient norms of the pieces of
            S reports.
        piece_spans: [M, 2] int32 or int64, characters [start, end) of each piece in its report.
        piece_offsets: [S+1] int64, where reports begin in the pieces.
        token_spans: [N, 2] int32 or int64, characters [start, end) of each token in its report.
        token_offsets: [S+1] int64, where reports begin in the tokens.

    Returns:
        [N] fp32, no gradient.

    Raises:
        TypeError: a tensor has the wrong dtype.
        ValueError: shapes or devices disagree, offsets do not cut their rows, a span is outside
            the range of int32, or a saliency is negative, NaN or infinite. Values on a GPU are
            device assertions, or this error under RRGKERN_CHECK=1.
    """
    check_tensors(
        saliency=saliency,
        piece_spans=piece_spans,
        piece_offsets=piece_offsets,
        token_spans=token_spans,
        token_offsets=token_offsets,
    )
    floats = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
    integers = (torch.int32, torch.int64)
    check_layout("saliency", saliency, floats, (-1,), "saliency", saliency)
    check_layout("piece_spans", piece_spans, integers, (saliency.shape[0], 2), "saliency", saliency)
    check_layout("piece_offsets", piece_offsets, (torch.int64,), (-1,), "saliency", saliency)
    check_layout("token_spans", token_spans, integers, (-1, 2), "saliency", saliency)
    check_layout(
        "token_offsets",
        token_offsets,
        (torch.int64,),
        (piece_offsets.shape[0],),
        "saliency",
        saliency,
    )
    largest: Tensor = span_max_op(
        saliency.detach().float(),
        _narrowed("piece_spans", piece_spans),
        piece_offsets,
        _narrowed("token_spans", token_spans),
        token_offsets,
    )
    return largest


def byte_level_spans(token_ids: Tensor, offsets: Tensor, vocabulary: ByteVocabulary) -> Tensor:
    """Find the characters that each token of a byte-level BPE stands for, from ids.

    Sampled ids are never decoded and encoded again, which would change them: the bytes of the
    tokens are laid end to end and counted in characters of `ByteVocabulary.text`. A token covers
    every character that has a byte in it, so the tokens that share one character share its span;
    a token without bytes has an empty span where it stands.

    Args:
        token_ids: [N] int32 or int64, the tokens of S reports one after another.
        offsets: [S+1] int64, where reports begin in `token_ids`.
        vocabulary: the bytes of every id, see `byte_vocabulary`; on the device of `token_ids`.

    Returns:
        [N, 2] int32, characters [start, end) counted from the start of each report.

    Raises:
        TypeError: a tensor has the wrong dtype.
        ValueError: shapes or devices disagree, offsets do not cut the tokens or the bytes of the
            vocabulary, or an id is outside it. Ids on a GPU are device assertions, or this error
            under RRGKERN_CHECK=1.
    """
    check_tensors(token_ids=token_ids, offsets=offsets)
    check_record("vocabulary", vocabulary, ByteVocabulary)
    check_layout("token_ids", token_ids, (torch.int32, torch.int64), (-1,), "token_ids", token_ids)
    check_layout("offsets", offsets, (torch.int64,), (-1,), "token_ids", token_ids)
    check_layout(
        "vocabulary.bytes", vocabulary.bytes, (torch.uint8,), (-1,), "token_ids", token_ids
    )
    check_layout(
        "vocabulary.offsets", vocabulary.offsets, (torch.int64,), (-1,), "token_ids", token_ids
    )
    spans: Tensor = byte_level_spans_op(token_ids.long(), offsets, *vocabulary)
    return spans


def _narrowed(name: str, spans: Tensor) -> Tensor:
    """Narrow spans to int32, enough for a text below 2 GiB; refuse others."""
    narrow = spans.int()
    fine = narrow == spans
    if not values_may_be_read(spans):
        torch._assert_async(fine.all(), f"span_max: {name} is outside the range of int32")
    elif not fine.all():
        row, side = (~fine).nonzero()[0].tolist()
        raise ValueError(
            f"{name} is {int(spans[row, side])} at row {row}, wanted a character's position of at "
            "most 2147483647"
        )
    return narrow


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
