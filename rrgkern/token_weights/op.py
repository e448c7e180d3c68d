"""Dispatcher of the token weights: csrc/token_weights on CPU and CUDA.

They weigh advantages and are constants: no gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrgkern import csrc
from rrgkern.checks import check_offsets, values_may_be_read
from rrgkern.dispatch import register_csrc
from rrgkern.token_weights import reference


@torch.library.custom_op("rrgkern::tfidf_weights", mutates_args=())
def tfidf_weights_op(
    token_ids: Tensor, offsets: Tensor, group_offsets: Tensor, logs: Tensor, alpha: float
) -> Tensor:
    """[N], [S+1], [B+1] int64, [S+1] fp64 -> [N] fp32."""
    check_groups(token_ids, offsets, group_offsets)
    return reference.tfidf_weights_reference(token_ids, offsets, group_offsets, logs, alpha)


def _launch_tfidf(
    token_ids: Tensor, offsets: Tensor, group_offsets: Tensor, logs: Tensor, alpha: float
) -> Tensor:
    check_groups(token_ids, offsets, group_offsets)
    weights = token_ids.new_empty(token_ids.shape, dtype=torch.float32)
    inputs = (token_ids, offsets, group_offsets, logs)
    _entry("tfidf_weights", weights)(*(t.contiguous() for t in inputs), alpha, weights)
    return weights


register_csrc(tfidf_weights_op, _launch_tfidf, ("cpu", "cuda"), "token_weights")


@tfidf_weights_op.register_fake
def _(
    token_ids: Tensor, offsets: Tensor, group_offsets: Tensor, logs: Tensor, alpha: float
) -> Tensor:
    return token_ids.new_empty(token_ids.shape, dtype=torch.float32)


def check_groups(token_ids: Tensor, offsets: Tensor, group_offsets: Tensor) -> None:
    """Raise ValueError where offsets and group offsets do not cut the tokens."""
    check_offsets("offsets", offsets, len(token_ids), "tokens")
    check_offsets("group_offsets", group_offsets, len(offsets) - 1, "sequences")


@torch.library.custom_op("rrgkern::span_max", mutates_args=())
def span_max_op(
    saliency: Tensor,
    piece_spans: Tensor,
    piece_offsets: Tensor,
    token_spans: Tensor,
    token_offsets: Tensor,
) -> Tensor:
    """[M] fp32, [M, 2] int32, [S+1] int64, [N, 2] int32, [S+1] int64 -> [N] fp32."""
    check_saliency(saliency, piece_offsets, token_spans, token_offsets)
    return reference.span_max_reference(
        saliency, piece_spans, piece_offsets, token_spans, token_offsets
    )


def _launch_span_max(
    saliency: Tensor,
    piece_spans: Tensor,
    piece_offsets: Tensor,
    token_spans: Tensor,
    token_offsets: Tensor,
) -> Tensor:
    check_saliency(saliency, piece_offsets, token_spans, token_offsets)
    result = saliency.new_empty(len(token_spans))
    inputs = (saliency, piece_spans, piece_offsets, token_spans, token_offsets)
    _entry("span_max", result)(*(t.contiguous() for t in inputs), result)
    return result


register_csrc(span_max_op, _launch_span_max, ("cpu", "cuda"), "token_weights")


@span_max_op.register_fake
def _(
    saliency: Tensor,
    piece_spans: Tensor,
    piece_offsets: Tensor,
    token_spans: Tensor,
    token_offsets: Tensor,
) -> Tensor:
    return saliency.new_empty(token_spans.shape[0])


def check_saliency(
    saliency: Tensor, piece_offsets: Tensor, token_spans: Tensor, token_offsets: Tensor
) -> None:
    """Raise ValueError for offsets that do not cut their rows, and a wrong saliency."""
    check_offsets("piece_offsets", piece_offsets, len(saliency), "pieces")
    check_offsets("token_offsets", token_offsets, len(token_spans), "tokens")
    fine = (saliency >= 0) & saliency.isfinite()
    if not values_may_be_read(saliency):
        torch._assert_async(fine.all(), "span_max: a saliency is negative, NaN or infinite")
    elif not fine.all():
        row = int((~fine).nonzero()[0])
        raise ValueError(
            f"saliency is {float(saliency[row])} at piece {row}, wanted a finite norm >= 0: does "
            "the labeller's gradient overflow?"
        )


@torch.library.custom_op("rrgkern::byte_level_spans", mutates_args=())
def byte_level_spans_op(
    token_ids: Tensor, offsets: Tensor, vocabulary_bytes: Tensor, vocabulary_offsets: Tensor
) -> Tensor:
    """[N], [S+1] int64, [total] uint8, [V+1] int64 -> [N, 2] int32."""
    check_ids(token_ids, offsets, vocabulary_bytes, vocabulary_offsets)
    return reference.byte_level_spans_reference(
        token_ids, offsets, vocabulary_bytes, vocabulary_offsets
    )


def _launch_spans(
    token_ids: Tensor, offsets: Tensor, vocabulary_bytes: Tensor, vocabulary_offsets: Tensor
) -> Tensor:
    check_ids(token_ids, offsets, vocabulary_bytes, vocabulary_offsets)
    spans = token_ids.new_empty((len(token_ids), 2), dtype=torch.int32)
    inputs = (token_ids, offsets, vocabulary_bytes, vocabulary_offsets)
    _entry("byte_level_spans", spans)(*(t.contiguous() for t in inputs), spans)
    return spans


register_csrc(byte_level_spans_op, _launch_spans, ("cpu", "cuda"), "token_weights")


@byte_level_spans_op.register_fake
def _(
    token_ids: Tensor, offsets: Tensor, vocabulary_bytes: Tensor, vocabulary_offsets: Tensor
) -> Tensor:
    return token_ids.new_empty((token_ids.shape[0], 2), dtype=torch.int32)


def check_ids(
    token_ids: Tensor, offsets: Tensor, vocabulary_bytes: Tensor, vocabulary_offsets: Tensor
) -> None:
    """Raise ValueError for offsets that do not cut their rows, and unknown ids."""
    check_offsets("offsets", offsets, len(token_ids), "tokens")
    check_offsets("vocabulary.offsets", vocabulary_offsets, len(vocabulary_bytes), "bytes")
    size = len(vocabulary_offsets) - 1
    fine = (token_ids >= 0) & (token_ids < size)
    if not values_may_be_read(token_ids):
        torch._assert_async(fine.all(), "byte_level_spans: a token id is outside the vocabulary")
    elif not fine.all():
        row = int((~fine).nonzero()[0])
        raise ValueError(
            f"token_ids is {int(token_ids[row])} at token {row}, wanted 0 to {size - 1}: the "
            "vocabulary must cover every id that the model can sample"
        )


def _entry(name: str, result: Tensor) -> Any:
    return getattr(csrc.load(), f"{name}_{result.device.type}")
