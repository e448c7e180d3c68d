"""The tiled head with Triton between the products; serves CUDA."""

from __future__ import annotations

from torch import Tensor

from rrgkern.dispatch import interpreting
from rrgkern.logps import tiled_head, triton_tile
from rrgkern.logps.head import Head, Tiling
from rrgkern.logps.online_softmax import RowStats, stats_dtype

# 4096 x 4096, 64 MiB of fp32 logits: large enough for the tensor cores, and square, because what a
# slice and a block of rows leave summed is read and written again by the next.
TILING = Tiling(columns=4096, elements=1 << 24)


def head_of(weight: Tensor, bias: Tensor | None, temperature: float, softcap: float) -> Head:
    """The head whose products read 16-bit operands as they are and sum in fp32."""
    # A CPU, where the interpreter runs, has no product of 16-bit operands with an fp32 result.
    operands = stats_dtype(weight.dtype) if interpreting() else weight.dtype
    bias = None if bias is None else bias.contiguous()
    return Head(weight, bias, temperature, softcap, operands)


def fwd(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    temperature: float,
    softcap: float,
    entropy: bool,
) -> RowStats:
    """Serve `rrgkern::linear_token_logps_fwd`."""
    head = head_of(weight, bias, temperature, softcap)
    return tiled_head.forward(hidden, targets.contiguous(), head, entropy, TILING, triton_tile)


def bwd(
    coef: Tensor,
    coef_entropy: Tensor | None,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    logps: Tensor,
    entropy: Tensor,
    shift: Tensor,
    lognorm: Tensor,
    temperature: float,
    softcap: float,
    want_hidden: bool,
    want_weight: bool,
    want_bias: bool,
) -> tiled_head.Gradients:
    """Serve `rrgkern::linear_token_logps_bwd`."""
    return _backward(
        *(None, coef, coef_entropy, hidden, weight, bias, targets, logps, entropy, shift, lognorm),
        *(temperature, softcap, (want_hidden, want_weight, want_bias)),
    )


def bwd_into(
    weight_total: Tensor,
    coef: Tensor,
    coef_entropy: Tensor | None,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    logps: Tensor,
    entropy: Tensor,
    shift: Tensor,
    lognorm: Tensor,
    temperature: float,
    softcap: float,
    want_hidden: bool,
    want_bias: bool,
) -> tuple[Tensor, Tensor]:
    """Serve `rrgkern::linear_token_logps_bwd_into`."""
    d_hidden, _, d_bias = _backward(
        *(weight_total, coef, coef_entropy, hidden, weight, bias, targets),
        *(logps, entropy, shift, lognorm, temperature, softcap, (want_hidden, True, want_bias)),
    )
    return d_hidden, d_bias


def _backward(
    weight_total: Tensor | None,
    coef: Tensor,
    coef_entropy: Tensor | None,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    logps: Tensor,
    entropy: Tensor,
    shift: Tensor,
    lognorm: Tensor,
    temperature: float,
    softcap: float,
    wanted: tuple[bool, bool, bool],
) -> tiled_head.Gradients:
    return tiled_head.backward(
        coef.contiguous(),
        None if coef_entropy is None else coef_entropy.contiguous(),
        hidden,
        targets.contiguous(),
        head_of(weight, bias, temperature, softcap),
        RowStats(logps, entropy, shift, lognorm),
        wanted,
        TILING,
        triton_tile,
        weight_total,
    )
