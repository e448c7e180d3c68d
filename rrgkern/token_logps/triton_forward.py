"""One streaming pass over each row of logits: log-probability, entropy, and the saved statistics.

A program owns a row. Each thread keeps the running sums of its own columns (top, mass and tilt of
`row_stats.Others`) and folds the columns of one 128-bit load at a time, so a column costs one
exponential and the row one reduction across threads, at the end. The target must stay out of
the sums: its block is folded first, with the target masked, and skipped by the loop, which so
compares no column with it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from rrgkern.token_logps.layout import columns_per_load, row_walk
from rrgkern.token_logps.row_stats import FAR, LOG2E, stats_dtype
from rrgkern.token_logps.targets import check_targets
from rrgkern.triton_lib.softmax_row import close_row, fold, load_block

NUM_WARPS = 8
# Loads in flight per thread: of 128 bits, or of one column each where rows are not aligned.
WIDE_LOADS, NARROW_LOADS = 2, 4


PER_ROW = ("targets_ptr", "logps_ptr", "entropy_ptr", "shift_ptr", "lognorm_ptr")


@triton.jit(do_not_specialize=["rows_per_batch"], do_not_specialize_on_alignment=PER_ROW)
def token_logps_fwd_kernel(
    logits_ptr,
    targets_ptr,
    logps_ptr,
    entropy_ptr,
    shift_ptr,
    lognorm_ptr,
    batch_stride,
    row_stride,
    column_stride,
    rows_per_batch,
    scale: tl.float64,
    VOCABULARY: tl.constexpr,
    ENTROPY: tl.constexpr,
    WIDE: tl.constexpr,
    FAR: tl.constexpr,
    LANES: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """One row per program; `scale` = log2(e) / T, statistics in the dtype WIDE."""
    row = tl.program_id(0).to(tl.int64)
    offset = (row // rows_per_batch) * batch_stride + (row % rows_per_batch) * row_stride
    logits_ptr += offset
    target = tl.load(targets_ptr + row)
    target_logit = tl.load(logits_ptr + target * column_stride).to(WIDE)
    scale = tl.full([], scale, WIDE)

    lane = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    BLOCK: tl.constexpr = LANES * VECTOR
    target_block = (target // BLOCK).to(tl.int32)

    z = load_block(logits_ptr, target_block, lane, column_stride, VOCABULARY, BLOCK, "")
    # The loop walks the other blocks, one load ahead of the arithmetic.
    ahead = load_block(
        logits_ptr, (target_block == 0).to(tl.int32), lane, column_stride, VOCABULARY, BLOCK, ""
    )
    top = tl.full([LANES], float("-inf"), WIDE)
    mass = tl.zeros([LANES], WIDE)
    tilt = tl.zeros([LANES], WIDE)
    others = tl.where(target_block * BLOCK + lane == target, float("-inf"), z.to(WIDE))
    top, mass, tilt = fold(top, mass, tilt, others, scale, ENTROPY, FAR)
    for step in tl.range(1, tl.cdiv(VOCABULARY, BLOCK)):
        z = ahead
        block = step + (step >= target_block).to(tl.int32)
        ahead = load_block(logits_ptr, block, lane, column_stride, VOCABULARY, BLOCK, "")
        top, mass, tilt = fold(top, mass, tilt, z.to(WIDE), scale, ENTROPY, FAR)

    logp, shift, lognorm, entropy = close_row(top, mass, tilt, target_logit, scale, ENTROPY)
    tl.store(logps_ptr + row, logp)
    tl.store(shift_ptr + row, shift)
    tl.store(lognorm_ptr + row, lognorm)
    if ENTROPY:
        tl.store(entropy_ptr + row, entropy)


def token_logps_fwd(
    logits: Tensor, targets: Tensor, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """logits [N, V] or [B, L, V], targets [N] -> logps, entropy, shift, lognorm, [N] each."""
    vocabulary = logits.shape[-1]
    check_targets(targets, vocabulary)
    wide = stats_dtype(logits.dtype)
    rows = len(targets)
    logps, shift, lognorm = (logits.new_empty(rows, dtype=wide) for _ in range(3))
    entropies = logits.new_empty(rows if entropy else 0, dtype=wide)
    vector = columns_per_load(logits)
    if rows:
        token_logps_fwd_kernel[(rows,)](
            logits,
            targets.contiguous(),
            logps,
            entropies,
            shift,
            lognorm,
            *row_walk(logits),
            LOG2E / temperature,
            VOCABULARY=vocabulary,
            ENTROPY=entropy,
            WIDE=tl.float64 if wide == torch.float64 else tl.float32,
            FAR=FAR,
            LANES=32 * NUM_WARPS * (WIDE_LOADS if vector > 1 else NARROW_LOADS),
            VECTOR=vector,
            num_warps=NUM_WARPS,
        )
    return logps, entropies, shift, lognorm
