"""The op behind `shared_prefix_decode`; sampling has no gradient, so it has no backward."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rrgkern.dispatch import register_triton
from rrgkern.ops import custom_op, pack
from rrgkern.shared_prefix.reference import DecodeStep, decode_reference


@custom_op("rrgkern::shared_prefix_decode", DecodeStep, mutates=("own_keys", "own_values"))
def shared_prefix_decode_op(*inputs: Any) -> Tensor:
    """Store new keys and values, and attend: [N, heads, D] to [N, heads, E]."""
    return decode_reference(pack(DecodeStep, inputs))


@shared_prefix_decode_op.register_fake
def _(*inputs: Any) -> Tensor:
    step = pack(DecodeStep, inputs)
    return step.query.new_empty(*step.query.shape[:2], step.value.shape[-1])


register_triton(shared_prefix_decode_op, "rrgkern.shared_prefix.triton_decode", "launch")
