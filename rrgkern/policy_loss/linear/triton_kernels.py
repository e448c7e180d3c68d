"""Work on sums over hidden states [N, H] in Triton: the twins of `cpu_kernels`."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl
from torch import Tensor

from rrgkern.logps.head import Head
from rrgkern.logps.triton_tile import TILES
from rrgkern.policy_loss.linear.cpu_kernels import factors
from rrgkern.policy_loss.linear.gradients import Directions, Plan

NUM_WARPS = 4
BLOCK = 32 * NUM_WARPS * 8
# The gradient in the forward keeps at most five tiles of fp32 logits: 1.25 GiB, 2176 rows of
# V = 151,936, on 80 GiB. Each block reads and writes the fp32 gradient of the weight once more.
PLAN = Plan(TILES, 5 * TILES.tiling.elements, sys.modules[__name__])


@triton.jit(do_not_specialize_on_alignment=["decay_ptr"])
def rescale_kernel(total_ptr, decay_ptr, stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Multiply one row per program by its decay.

    Past the first slices most rows keep their maximum: nothing is read.
    """
    row = tl.program_id(0).to(tl.int64)
    decay = tl.load(decay_ptr + row)
    if decay != 1.0:
        for start in tl.range(0, WIDTH, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            at = total_ptr + row * stride + columns
            tl.store(at, tl.load(at, columns < WIDTH, other=0.0) * decay, columns < WIDTH)


@triton.jit(do_not_specialize_on_alignment=["targets_ptr", "norm_ptr", "at_target_ptr", "coef_ptr"])
def direction_kernel(
    total_ptr,
    weight_ptr,
    out_ptr,
    targets_ptr,
    norm_ptr,
    at_target_ptr,
    coef_ptr,
    total_stride,
    weight_stride,
    out_stride,
    WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One block of one row per program; the coefficient is already over the temperature."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < WIDTH
    target = tl.load(targets_ptr + row)
    coef = tl.load(coef_ptr + row)
    norm = tl.load(norm_ptr + row) * coef
    at_target = tl.load(at_target_ptr + row) * coef
    total = tl.load(total_ptr + row * total_stride + columns, inside, other=0.0)
    weight = tl.load(weight_ptr + target * weight_stride + columns, inside, other=0.0).to(WIDE)
    rows = tl.where(coef != 0, at_target * weight - norm * total, 0.0)
    tl.store(out_ptr + row * out_stride + columns, rows.to(out_ptr.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["size"], do_not_specialize_on_alignment=["factor_ptr"])
def scale_kernel(
    values_ptr, factor_ptr, out_ptr, size, IN_PLACE: tl.constexpr, BLOCK: tl.constexpr
):
    """out = values * factor. In place, the 1 of `loss.backward()` reads and writes nothing."""
    factor = tl.load(factor_ptr)
    if (factor != 1.0) | (not IN_PLACE):
        first = tl.program_id(0).to(tl.int64) * BLOCK
        values_ptr += first
        out_ptr += first
        lane = tl.arange(0, BLOCK)
        # Unmasked but for the last block: the mask of an unknown size would split the accesses.
        if first + BLOCK <= size:
            scaled = tl.load(values_ptr + lane).to(factor.dtype) * factor
            tl.store(out_ptr + lane, scaled.to(out_ptr.dtype.element_ty))
        else:
            inside = lane < size - first
            scaled = tl.load(values_ptr + lane, inside, other=0.0).to(factor.dtype) * factor
            tl.store(out_ptr + lane, scaled.to(out_ptr.dtype.element_ty), inside)


def rescale(total: Tensor, decay: Tensor) -> None:
    """See `cpu_kernels.rescale`."""
    rescale_kernel[(len(total),)](
        total, decay, total.stride(0), WIDTH=total.shape[1], BLOCK=BLOCK, num_warps=NUM_WARPS
    )


def direction(found: Directions, targets: Tensor, head: Head, coef: Tensor, out: Tensor) -> None:
    """See `cpu_kernels.direction`."""
    total = found.total
    norm, at_target = factors(found, head)
    weight = head.weight
    if weight.stride(1) != 1 or weight.dtype != head.states:
        weight, targets = head.rows(targets), torch.arange(len(targets), device=targets.device)
    direction_kernel[(len(total), triton.cdiv(total.shape[1], BLOCK))](
        total,
        weight,
        out,
        targets,
        norm,
        at_target,
        coef / head.temperature,
        total.stride(0),
        weight.stride(0),
        out.stride(0),
        WIDTH=total.shape[1],
        WIDE=tl.float64 if total.dtype == torch.float64 else tl.float32,
        BLOCK=BLOCK,
        num_warps=NUM_WARPS,
    )


def scale(values: Tensor, factor: Tensor, out: Tensor) -> None:
    """See `cpu_kernels.scale`."""
    if values.numel():
        scale_kernel[(triton.cdiv(values.numel(), BLOCK),)](
            values,
            factor,
            out,
            values.numel(),
            IN_PLACE=out is values,
            BLOCK=BLOCK,
            num_warps=NUM_WARPS,
        )


def scale_in_place(grad_loss: Tensor, d_hidden: Tensor, d_weight: Tensor, d_bias: Tensor) -> None:
    """Serve `rrgkern::linear_policy_loss_scale_`."""
    for gradient in (d_hidden, d_weight, d_bias):
        scale(gradient, grad_loss, gradient)
