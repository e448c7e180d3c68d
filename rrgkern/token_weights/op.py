"""Dispatcher of the token weights: csrc/token_weights on CPU and CUDA.

They weigh advantages and are constants: no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.library import CustomOpDef

from rrgkern import csrc
from rrgkern.checks import check_offsets, values_may_be_read
from rrgkern.dispatch import register_csrc
from rrgkern.ops import custom_op
from rrgkern.token_weights import reference


class TfidfInputs(NamedTuple):
    """Arguments of `rrgkern::tfidf_weights`: [N], [S+1], [B+1] int64, [S+1] fp64."""

    token_ids: Tensor
    offsets: Tensor
    group_offsets: Tensor
    logs: Tensor
    alpha: float

    def check(self) -> None:
        """Raise ValueError where offsets and group offsets do not cut the tokens."""
        check_offsets("offsets", self.offsets, len(self.token_ids), "tokens")
        check_offsets("group_offsets", self.group_offsets, len(self.offsets) - 1, "sequences")

    def empty(self) -> Tensor:
        """Allocate the result, [N] fp32."""
        return self.token_ids.new_empty(self.token_ids.shape, dtype=torch.float32)


class SpanMaxInputs(NamedTuple):
    """Arguments of `rrgkern::span_max`: [M] fp32, [M, 2] int32, [S+1], [N, 2] int32, [S+1]."""

    saliency: Tensor
    piece_spans: Tensor
    piece_offsets: Tensor
    token_spans: Tensor
    token_offsets: Tensor

    def check(self) -> None:
        """Raise ValueError for offsets that do not cut their rows, and a wrong saliency."""
        saliency = self.saliency
        check_offsets("piece_offsets", self.piece_offsets, len(saliency), "pieces")
        check_offsets("token_offsets", self.token_offsets, len(self.token_spans), "tokens")
        fine = (saliency >= 0) & saliency.isfinite()
        if not values_may_be_read(saliency):
            torch._assert_async(fine.all(), "span_max: a saliency is negative, NaN or infinite")
        elif not fine.all():
            row = int((~fine).nonzero()[0])
            raise ValueError(
                f"saliency is {float(saliency[row])} at piece {row}, wanted a finite norm >= 0: "
                "does the labeller's gradient overflow?"
            )

    def empty(self) -> Tensor:
        """Allocate the result, [N] fp32."""
        return self.saliency.new_empty(self.token_spans.shape[0])


class SpansInputs(NamedTuple):
    """Arguments of `rrgkern::byte_level_spans`: [N], [S+1] int64, [total] uint8, [V+1] int64."""

    token_ids: Tensor
    offsets: Tensor
    vocabulary_bytes: Tensor
    vocabulary_offsets: Tensor

    def check(self) -> None:
        """Raise ValueError for offsets that do not cut their rows, and unknown ids."""
        ids, size = self.token_ids, self.vocabulary_offsets.shape[0] - 1
        check_offsets("offsets", self.offsets, len(ids), "tokens")
        name, count = "vocabulary.offsets", len(self.vocabulary_bytes)
        check_offsets(name, self.vocabulary_offsets, count, "bytes")
        fine = (ids >= 0) & (ids < size)
        if not values_may_be_read(ids):
            torch._assert_async(
                fine.all(), "byte_level_spans: a token id is outside the vocabulary"
            )
        elif not fine.all():
            row = int((~fine).nonzero()[0])
            raise ValueError(
                f"token_ids is {int(ids[row])} at token {row}, wanted 0 to {size - 1}: the "
                "vocabulary must cover every id that the model can sample"
            )

    def empty(self) -> Tensor:
        """Allocate the result, [N, 2] int32."""
        return self.token_ids.new_empty((self.token_ids.shape[0], 2), dtype=torch.int32)


def _register(name: str, record: Any, serve: Callable[..., Tensor]) -> CustomOpDef:
    """Register an op of one result by its record, with `serve` where csrc cannot."""

    @custom_op(f"rrgkern::{name}", record)
    def op(*inputs: Any) -> Tensor:
        record(*inputs).check()
        return serve(*inputs)

    def launch(*inputs: Any) -> Tensor:
        call = record(*(x.contiguous() if isinstance(x, Tensor) else x for x in inputs))
        call.check()
        result: Tensor = call.empty()
        getattr(csrc.load(), f"{name}_{result.device.type}")(*call, result)
        return result

    op.register_fake(lambda *inputs: record(*inputs).empty())
    register_csrc(op, launch, ("cpu", "cuda"), "token_weights")
    return op


tfidf_weights_op = _register("tfidf_weights", TfidfInputs, reference.tfidf_weights_reference)
span_max_op = _register("span_max", SpanMaxInputs, reference.span_max_reference)
byte_level_spans_op = _register(
    "byte_level_spans", SpansInputs, reference.byte_level_spans_reference
)
