"""Serve a head by products that sum their own softmax; gradients in two ways.

    statistics       one launch, no logit is written: the log-probabilities of `old`, of the
                     reference, and of a policy whose gradient comes later
    gradients        that gradient, once the coefficients are known: the products again, the
                     gradient of the logits in 16 bits by slices of columns, two plain products
    with_gradients   both at once where `old` is known: exp((z - base) / T) in bf16 from a base a
                     row, z_target - T old, the logsumexp of the policy that sampled. With p the
                     softmax, S its sum from that base and c the coefficient of a row,

                         dhidden = diag(-c / (S T)) (E W),     dW = E^T diag(-c / (S T)) hidden,

                     where E holds S (p_t - 1) at the target, in which nothing cancels

Records and formulas are those of the head of tiles (`rrgkern/logps`), which takes the rows whose
base is further than LIMIT from their logsumexp. Results do not depend on the order of programs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from experiments.head_epilogue.card import Plan
from experiments.head_epilogue.triton_kernels import (
    exponentials_kernel,
    gradient_kernel,
    statistics_kernel,
)
from rrgkern.logps import triton_tile
from rrgkern.logps.head import BackwardRows, Gradients, NeedsGrad, accumulate, tiled_backward
from rrgkern.logps.inputs import FromHidden, check_targets
from rrgkern.logps.online_softmax import (
    FAR,
    LOG2E,
    Coefficients,
    OnlineSoftmax,
    RowSums,
    SoftmaxStats,
)
from rrgkern.triton_lib import launch_options

# Nats between a row's base and its logsumexp: bf16 ends at 88, and has 27 more below.
LIMIT = 60.0


def statistics(x: FromHidden, plan: Plan) -> SoftmaxStats:
    """Log-probabilities, entropy and what a backward needs, of hidden [N, H] in 16 bits."""
    check_targets(x.targets, len(x.weight))
    sums, target = _room_for_sums(x, plan)
    scale = LOG2E / x.temperature
    per_row = (x.targets, *sums, target)
    capped = {"SOFTCAP": x.softcap != 0, "ENTROPY": x.entropy}
    _launch(statistics_kernel, x, per_row, (scale, x.softcap), None, plan, **capped)
    if x.softcap:
        target = x.softcap * torch.tanh(target / x.softcap)
    return _close(x, sums, target)


def gradients(rows: BackwardRows, x: FromHidden, needs: NeedsGrad, plan: Plan) -> Gradients:
    """Gradients of sum(coef * logps + coef_entropy * entropy), as `tiled_backward`."""
    weight, bias = x.weight, x.bias
    active = rows.coefficients.active().nonzero().flatten()
    rows, count = rows.select(active), len(active)
    operands = triton_tile.head_of(x).operands
    hidden = rows.hidden.to(operands)
    d_active = hidden.new_zeros(hidden.shape, dtype=torch.float32)
    d_weight = torch.zeros_like(weight) if needs.weight else weight.new_empty(0)
    d_bias = torch.zeros_like(bias) if bias is not None and needs.bias else weight.new_empty(0)
    width = max(plan.tiles.n, plan.room // (2 * max(1, count)) // plan.tiles.n * plan.tiles.n)
    for start in range(0, len(weight) if count else 0, width):
        columns = slice(start, min(start + width, len(weight)))
        part = x._replace(
            hidden=rows.hidden,
            targets=rows.targets - start,
            weight=weight[columns],
            bias=None if bias is None else bias[columns],
        )
        dz = _gradient_of_logits(part, rows.stats, rows.coefficients, plan)
        if d_bias.numel():
            d_bias[columns] = dz.sum(0, dtype=torch.float32)
        dz = dz.to(operands)
        if needs.hidden:
            accumulate(d_active, dz, part.weight.to(operands), first=start == 0)
        if needs.weight:
            _write(d_weight[columns], dz.T, hidden)
    d_hidden = weight.new_empty(0)
    if needs.hidden:
        d_hidden = weight.new_zeros(x.hidden.shape)
        d_hidden[active] = d_active.to(d_hidden.dtype)
    return Gradients(d_hidden, d_weight, d_bias)


def with_gradients(
    x: FromHidden,
    old: Tensor,
    coefficient: Callable[[Tensor, slice], Tensor],
    needs: NeedsGrad,
    plan: Plan,
) -> tuple[SoftmaxStats, Gradients]:
    """Statistics, and gradients of an objective of the log-probabilities, products made once.

    Args:
        old: [N], log-probabilities of the targets under the policy that sampled.
        coefficient: its gradient by the log-probabilities of a block of rows, fp32, from those
            and the block; rows whose gradients depend on other blocks' have none here.

    Returns:
        Statistics of all rows, and the gradients in the inputs' dtypes. The host waits once a
        block, for the number of rows that go by the head of tiles; their part of dW is rounded
        once more.

    Raises:
        ValueError: hidden is float16, whose exponent allows no base beside the logsumexp, or the
            head has a softcap, whose slope takes more registers than there are.
    """
    if x.hidden.dtype != torch.bfloat16 or x.softcap:
        raise ValueError(
            f"hidden is {x.hidden.dtype} and softcap {x.softcap}, wanted bfloat16 and none; take "
            "statistics, then gradients"
        )
    check_targets(x.targets, len(x.weight))
    count, vocabulary = len(x.hidden), len(x.weight)
    head = triton_tile.head_of(x)
    weight = x.weight.to(head.operands)
    height = max(plan.tiles.m, plan.room // (2 * vocabulary) // plan.tiles.m * plan.tiles.m)
    blocks = [slice(k, min(k + height, count)) for k in range(0, count, height)]
    stats = SoftmaxStats.empty(x.hidden, count, torch.float32, x.entropy)
    d_hidden = torch.zeros_like(x.hidden) if needs.hidden else x.hidden.new_empty(0)
    # Sums of several blocks are rounded once.
    wide = torch.float32 if len(blocks) > 1 else x.weight.dtype
    d_weight = torch.zeros_like(x.weight, dtype=wide) if needs.weight else x.weight.new_empty(0)
    with_bias = x.bias is not None and needs.bias
    d_bias = x.weight.new_zeros(vocabulary if with_bias else 0, dtype=torch.float32)
    for block in blocks:
        part = x._replace(hidden=x.hidden[block], targets=x.targets[block])
        base = base_of(part, old[block])
        e, of_block = _exponentials(part, base, plan)
        for whole, piece in zip(stats.rows(block), of_block, strict=True):
            if len(whole):
                whole.copy_(piece)
        log_sum = (of_block.shift - base) / x.temperature + of_block.lognorm
        # NaN is far, too.
        far = (~(log_sum.abs() <= LIMIT)).nonzero().flatten()
        coef = coefficient(of_block.logps, block)
        scale = -coef / x.temperature * torch.exp(-log_sum)
        at_target = torch.expm1(of_block.logps) * torch.exp(log_sum)
        e.scatter_(1, part.targets[:, None], at_target[:, None].to(e.dtype))
        scaled = (scale[:, None] * part.hidden).to(x.hidden.dtype)
        if len(far):  # selected, never multiplied by 0
            e[far], scale[far], scaled[far] = 0, 0, 0
        e = e.to(head.operands)
        first = block.start == 0
        if needs.hidden:
            d_block = e.new_empty(part.hidden.shape, dtype=torch.float32)
            accumulate(d_block, e, weight, first=True)
            d_hidden[block] = (scale[:, None] * d_block).to(d_hidden.dtype)
        if needs.weight and first and len(blocks) == 1:
            _write(d_weight, e.T, scaled.to(head.operands))
        elif needs.weight:
            accumulate(d_weight, e.T, scaled.to(head.operands), first)
        if with_bias:
            column = scale.to(head.operands)[:, None]
            accumulate(d_bias[:, None], e.T, column, first)
        if len(far):
            del e  # the head of tiles wants its memory
            left = BackwardRows(part.hidden, part.targets, of_block, Coefficients(coef, None))
            into = d_weight if needs.weight else None
            rest = tiled_backward(left.select(far), head, needs, triton_tile.TILES, into)
            if needs.hidden:
                d_hidden[block.start + far] = rest.hidden
            if with_bias:
                d_bias += rest.bias
    of_bias = d_bias if x.bias is None else d_bias.to(x.bias.dtype)
    return stats, Gradients(d_hidden, d_weight.to(x.weight.dtype), of_bias)


def base_of(x: FromHidden, old: Tensor) -> Tensor:
    """Return z_target - T old, [N] fp32: T times the sampling policy's logsumexp."""
    product = (x.hidden.float() * x.weight[x.targets].float()).sum(1)
    if x.bias is not None:
        product += x.bias[x.targets].float()
    return product - x.temperature * old.float()


def _exponentials(x: FromHidden, base: Tensor, plan: Plan) -> tuple[Tensor, SoftmaxStats]:
    """Return E [R, V] in bf16, 0 at targets, and statistics."""
    sums, target = _room_for_sums(x, plan)
    out, scale = _room(x), LOG2E / x.temperature
    per_row = (x.targets, base, *sums, target)
    _launch(exponentials_kernel, x, per_row, (scale,), out, plan, ENTROPY=x.entropy)
    return out, _close(x, sums, target)


def _gradient_of_logits(
    x: FromHidden, stats: SoftmaxStats, coefficients: Coefficients, plan: Plan
) -> Tensor:
    """Return the gradient of the products [R, V], or of a slice whose first target is 0."""
    coef, coef_entropy = coefficients
    out, entropy = _room(x), coef_entropy is not None
    per_row: Any = (x.targets, coef, coef_entropy if entropy else coef, *stats)
    constants = {"FAR": FAR, "ENTROPY": entropy, "SOFTCAP": x.softcap != 0}
    _launch(gradient_kernel, x, per_row, (1 / x.temperature, x.softcap), out, plan, **constants)
    return out


def _room(x: FromHidden) -> Tensor:
    """Room for 16-bit numbers [R, V], whose rows begin at multiples of 16 bytes."""
    rows, columns = len(x.hidden), len(x.weight)
    return x.hidden.new_empty(rows, -(-columns // 8) * 8)[:, :columns]


def _room_for_sums(x: FromHidden, plan: Plan) -> tuple[tuple[Tensor, ...], Tensor]:
    """Room for maximum, mass and tilt of each tile, [parts, R], and for the target's product."""
    rows, parts = len(x.hidden), triton.cdiv(len(x.weight), plan.tiles.n)
    top, mass, *tilt = x.hidden.new_empty(2 + x.entropy, parts, rows, dtype=torch.float32)
    target = x.hidden.new_full((rows,), math.nan, dtype=torch.float32)
    return (top, mass, tilt[0] if tilt else mass), target


def _close(x: FromHidden, sums: tuple[Tensor, ...], target_logit: Tensor) -> SoftmaxStats:
    """Merge the sums of the tiles in fp64."""
    top, mass, tilt = (part.double() for part in sums)
    most = top.amax(0)
    drop = torch.where(mass > 0, (most - top) / x.temperature, 0.0).clamp(max=FAR)
    decay = torch.exp(-drop)
    weighted = ((tilt * math.log(2) + drop * mass) * decay).sum(0)
    others = OnlineSoftmax(most, (mass * decay).sum(0), weighted)
    return RowSums(others, target_logit).close(x.temperature, x.entropy)


def _write(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Write a @ b to `total`, rounded once from sums in fp32."""
    if total.dtype == a.dtype:
        accumulate(total, a, b, first=True)
    else:  # the interpreter's products are fp32
        total.copy_(a @ b)


def _launch(
    kernel: Any,
    x: FromHidden,
    per_row: tuple[Tensor, ...],
    numbers: tuple[float, ...],
    out: Tensor | None,
    plan: Plan,
    **constants: Any,
) -> None:
    """Launch one of the three kernels; `out` [R, V] is what it writes beside numbers a row."""
    tiles, (rows, width), columns = plan.tiles, x.hidden.shape, len(x.weight)
    operands: list[Any] = [x.hidden.contiguous(), x.weight.contiguous()]
    written: list[Any] = [] if out is None else [out]
    if tiles.tma:
        heights = (tiles.m, tiles.n)
        operands = [TensorDescriptor.from_tensor(t, [height, tiles.k])
                    for t, height in zip(operands, heights, strict=True)]  # fmt: skip
        written = [TensorDescriptor.from_tensor(t, [tiles.m, tiles.n]) for t in written]
    kernel[(min(plan.programs, triton.cdiv(rows, tiles.m) * triton.cdiv(columns, tiles.n)),)](
        *operands,
        x.weight if x.bias is None else x.bias,
        *written,
        *per_row,
        rows,
        columns,
        *([] if out is None else [out.stride(0)]),
        *numbers,
        H=width,
        M=tiles.m,
        N=tiles.n,
        K=tiles.k,
        GROUP=plan.group,
        TMA=tiles.tma,
        BIAS=x.bias is not None,
        FLATTEN=tiles.tma,
        **constants,
        **launch_options(tiles.warps),
        num_stages=tiles.stages,
    )
