"""Form a head's logits tile by tile: log-probabilities, and gradients, without [N, V] in memory.

The tiles go column slice by column slice and, inside a slice, row block by row block. So the
gradient of a slice of the weight is complete when the slice is left: it is rounded once, and no
fp32 copy of [V, H] exists. The backward recomputes the logits, on the rows whose coefficients
are not both 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from rrgkern.logps.inputs import FromHidden, check_targets
from rrgkern.logps.online_softmax import Coefficients, RowSums, SoftmaxStats, stats_dtype


class Tiling(NamedTuple):
    """Bounds of one tile of logits: `columns` wide and `elements` large.

    Where `share` is set, a GPU's tile has 1 / `share` of its memory in fp32. It then holds all rows
    and is as wide as that allows, `columns` at least; blocks are nearly equal where it cannot.
    """

    columns: int
    elements: int
    share: int = 0

    def on(self, device: torch.device) -> Tiling:
        """Take the elements from the memory of a GPU."""
        if not self.share or device.type != "cuda":
            return self
        memory = torch.cuda.get_device_properties(device).total_memory
        return self._replace(elements=memory // self.share // torch.float32.itemsize)

    def for_rows(self, rows: int, widest: int) -> Tiling:
        """Widen the slices to what `elements` allow for so many rows, `widest` at most."""
        fitting = min(self.elements // max(1, rows), widest) if self.share else 0
        return self._replace(columns=max(self.columns, fitting - fitting % 64))

    def scratch(self, like: Tensor, rows: int, vocabulary: int, dtype: torch.dtype) -> Tensor:
        """Room for one tile. Fresh memory for each would cost more page faults than products."""
        size = min(max(self.elements, min(self.columns, vocabulary)), rows * vocabulary)
        return like.new_empty(size, dtype=dtype)

    def slices(self, vocabulary: int) -> Iterator[slice]:
        """Column slices of nearly equal width, a multiple of 64 where there are several."""
        pieces = -(-vocabulary // self.columns)
        width = vocabulary if pieces == 1 else -(-vocabulary // (64 * pieces)) * 64
        return (slice(lo, min(lo + width, vocabulary)) for lo in range(0, vocabulary, width))

    def blocks(self, rows: int, width: int) -> Iterator[slice]:
        """Row blocks of at most `elements` numbers; 64 rows or a multiple, or fewer."""
        height = self.even(rows, max(1, self.elements // width))
        return (slice(lo, min(lo + height, rows)) for lo in range(0, rows, height))

    def even(self, rows: int, height: int) -> int:
        """Height of as many blocks as `height` makes, nearly equal where `share` is set."""
        if height >= rows:
            return max(1, rows)
        height -= height % 64 if height > 64 else 0
        pieces = -(-rows // height)
        return min(height, -(-rows // (64 * pieces)) * 64) if self.share else height


class Tiles(NamedTuple):
    """Size of the tiles, and the module whose functions work on one between the products.

    `kernels` is `cpu_tile`, `csrc_launch` or `triton_tile`: `head_of`, and `add_to_sums`,
    `exponentials` and `tile_gradient` of a `Tile`, documented in `cpu_tile`. `whole_rows` is
    `csrc_launch.whole_rows`, which serves a tile of all columns in one call, or None.
    """

    tiling: Tiling
    kernels: ModuleType
    whole_rows: Callable[[Tile, SoftmaxStats], bool] | None = None


class Head(NamedTuple):
    """A linear head: weight [V, H], bias [V], temperature, softcap, and its products' dtypes.

    `softcap` is 0 for none. The weight is rounded to the states' dtype, a slice at a time, where
    its own is wider. Products read their operands in the dtype `operands` and are never rounded
    below the statistics' dtype, neither in the forward nor in the backward, so both see the same
    logits.
    """

    weight: Tensor
    bias: Tensor | None
    temperature: float
    softcap: float
    operands: torch.dtype
    rounded: torch.dtype | None = None  # the states' dtype; None: the weight's own

    @property
    def wide(self) -> torch.dtype:
        """The dtype of logits, statistics and sums across tiles."""
        return stats_dtype(self.states)

    @property
    def states(self) -> torch.dtype:
        """The dtype of hidden states, to which the weight is rounded."""
        return self.rounded or self.weight.dtype

    @property
    def widest(self) -> int:
        """Limit a slice's columns: an eighth of a weight that is rounded."""
        vocabulary = len(self.weight)
        return vocabulary if self.weight.dtype == self.states else vocabulary // 8

    def rows(self, columns: slice | Tensor) -> Tensor:
        """Rows of the weight for these columns of the logits, as products read them."""
        return self.weight[columns].to(self.states).to(self.operands)

    def product(self, hidden: Tensor, weight: Tensor, scratch: Tensor) -> Tensor:
        """Multiply hidden [R, H] by a slice of the weight [C, H].

        The result, [R, C] in `wide`, lies in `scratch`.
        """
        z = tile_of(scratch, len(hidden), len(weight))
        if hidden.dtype == z.dtype:
            return torch.mm(hidden, weight.T, out=z)
        return torch.mm(hidden, weight.T, out_dtype=z.dtype, out=z)


class Tile(NamedTuple):
    """Products hidden W^T of some rows and columns, without bias and cap.

    z: [R, C] in `head.wide`; every step on a tile may overwrite it.
    targets: [R], columns of the whole vocabulary.
    spare: room for a second tile in the dtype of the products' operands, or None.
    """

    z: Tensor
    targets: Tensor
    columns: slice
    head: Head
    spare: Tensor | None = None


class NeedsGrad(NamedTuple):
    """Say for each input if its gradient is wanted."""

    hidden: bool
    weight: bool
    bias: bool


class Gradients(NamedTuple):
    """Gradients in the dtypes of the inputs; size 0 where not wanted."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor


class BackwardRows(NamedTuple):
    """Rows [N] of the backward: hidden states, targets, statistics, coefficients."""

    hidden: Tensor
    targets: Tensor
    stats: SoftmaxStats
    coefficients: Coefficients

    def select(self, rows: slice | Tensor) -> BackwardRows:
        """Select rows."""
        stats, coefficients = self.stats.rows(rows), self.coefficients.rows(rows)
        return BackwardRows(self.hidden[rows], self.targets[rows], stats, coefficients)


def masked_forward(x: FromHidden, head: Head, tiles: Tiles) -> SoftmaxStats:
    """`tiled_forward` of the rows that `x.keep` keeps: the others cost nothing, and hold 0.

    The sizes of the products must be known on the host: with a mask a GPU is waited for, once.
    """
    if x.keep is None:
        return tiled_forward(x.hidden, x.targets, head, x.entropy, tiles)
    rows = x.keep.nonzero()[:, 0]
    stats = tiled_forward(x.hidden[rows], x.targets[rows], head, x.entropy, tiles)
    return stats.scattered(rows, len(x.keep), x.entropy)


def tiled_forward(
    hidden: Tensor, targets: Tensor, head: Head, entropy: bool, tiles: Tiles
) -> SoftmaxStats:
    """Statistics of each row of hidden [N, H], targets [N]."""
    rows, vocabulary, kernels = len(hidden), len(head.weight), tiles.kernels
    tiling = tiles.tiling.on(hidden.device).for_rows(rows, head.widest)
    scratch = tiling.scratch(hidden, rows, vocabulary, head.wide)
    if tiles.whole_rows is not None and tiling.columns >= vocabulary:
        stats = SoftmaxStats.empty(hidden, rows, head.wide, entropy)
        weight = head.rows(slice(0, vocabulary))
        for block in tiling.blocks(rows, vocabulary):
            z = head.product(hidden[block].to(head.operands), weight, scratch)
            tile = Tile(z, targets[block], slice(0, vocabulary), head)
            if not tiles.whole_rows(tile, stats.rows(block)):
                check_targets(targets, vocabulary)
        return stats
    check_targets(targets, vocabulary)
    sums = RowSums.empty(hidden, rows, head.wide)
    width, parts = 0, []
    for columns in tiling.slices(vocabulary):
        weight = head.rows(columns)
        if len(weight) != width:  # views cost a host as much as a launch: made once
            width, blocks = len(weight), tiling.blocks(rows, len(weight))
            parts = [(hidden[block], targets[block], sums.rows(block)) for block in blocks]
        for h, t, s in parts:
            z = head.product(h.to(head.operands), weight, scratch)
            kernels.add_to_sums(Tile(z, t, columns, head), s, entropy)
    return sums.close(head.temperature, entropy)


def tiled_backward(
    rows: BackwardRows,
    head: Head,
    needs: NeedsGrad,
    tiles: Tiles,
    weight_total: Tensor | None = None,
) -> Gradients:
    """Gradients of sum(coef * logps + coef_entropy * entropy).

    With `weight_total` [V, H] each slice of the weight's gradient is added there as soon as it is
    complete, and the one returned is empty.
    """
    hidden, weight, bias, wide = rows.hidden, head.weight, head.bias, head.wide
    kernels, nothing = tiles.kernels, hidden.new_empty(0)
    into = needs.weight and weight_total is not None
    # One empty tensor each: the outputs of an op must be distinct tensors.
    d_hidden = torch.zeros_like(hidden) if needs.hidden else nothing.clone()
    d_weight = torch.empty_like(weight) if needs.weight and not into else nothing.clone()
    d_bias = torch.empty_like(bias) if bias is not None and needs.bias else nothing.clone()

    # 1. Rows whose coefficients are both 0 are left out of every product.
    active = rows.coefficients.active().nonzero().flatten()
    if not len(active):
        return Gradients(d_hidden, d_weight.zero_(), d_bias.zero_())
    some = len(active) < len(hidden)
    if some:
        # Rows are selected, never multiplied by 0: what stands in the others cannot matter.
        rows = rows.select(active)
        hidden = rows.hidden

    # 2. Each tile: logits again, their gradient in place, and its products with W and h.
    tiling = tiles.tiling.on(hidden.device).for_rows(len(hidden), head.widest)
    scratch = tiling.scratch(hidden, len(hidden), len(weight), wide)
    spare = tiling.scratch(hidden, len(hidden), len(weight), head.operands)
    # Summed in place where the dtype is wide enough.
    sums_in_place = needs.hidden and not some and d_hidden.dtype == wide
    d_active = nothing
    if needs.hidden:
        d_active = d_hidden if sums_in_place else hidden.new_empty(hidden.shape, dtype=wide)
    width, parts = 0, []
    for columns in tiling.slices(len(weight)):
        w = head.rows(columns)
        if len(w) != width:
            width, blocks = len(w), tiling.blocks(len(hidden), len(w))
            parts = [(block, rows.select(block)) for block in blocks]
        # One block of rows writes the slice once, in its dtype; several are summed in fp32.
        total = d_weight if weight_total is None else weight_total
        once = len(parts) == 1 and total.dtype in (head.operands, wide)
        in_place = once or (total.dtype == wide and not into)
        d_slice = nothing
        if needs.weight:
            d_slice = total[columns] if in_place else hidden.new_empty(w.shape, dtype=wide)
        d_bias_slice = hidden.new_zeros(len(w), dtype=wide)
        for block, part in parts:
            h = part.hidden.to(head.operands)
            tile = Tile(head.product(h, w, scratch), part.targets, columns, head, spare)
            dz = kernels.tile_gradient(tile, part.stats, part.coefficients)
            if d_bias.numel():
                d_bias_slice += dz.sum(0, dtype=wide)
            if needs.hidden:
                accumulate(d_active[block], dz, w, first=columns.start == 0)
            if needs.weight:
                accumulate(d_slice, dz.T, h, first=block.start == 0 and not (into and in_place))
        # 3. The slice is left: a sum of blocks is rounded once.
        if needs.weight and not in_place and into:
            total[columns] += d_slice
        elif needs.weight and not in_place:
            total[columns] = d_slice
        if d_bias.numel():
            d_bias[columns] = d_bias_slice
    if some and needs.hidden:
        d_hidden[active] = d_active.to(d_hidden.dtype)
    elif needs.hidden and not sums_in_place:
        d_hidden.copy_(d_active)
    return Gradients(d_hidden, d_weight, d_bias)


def tile_of(scratch: Tensor, rows: int, columns: int) -> Tensor:
    """View the beginning of `scratch` as [rows, columns], contiguous."""
    return scratch[: rows * columns].view(rows, columns)


def accumulate(total: Tensor, a: Tensor, b: Tensor, first: bool) -> None:
    """Add a @ b to total, or write it when `first`.

    Products of 16-bit operands are summed in fp32; a total in 16 bits is rounded once.
    """
    beta = 0 if first else 1
    if a.dtype != total.dtype:
        torch.addmm(total, a, b, out_dtype=total.dtype, beta=beta, out=total)
        return
    with summed_in_fp32() if total.itemsize == 2 else nullcontext():
        torch.addmm(total, a, b, beta=beta, out=total)


@contextmanager
def summed_in_fp32() -> Iterator[None]:
    """Keep cuBLAS from adding parts of a product in 16 bits."""
    matmul, before = torch.backends.cuda.matmul, {}
    for dtype in ("bf16", "fp16"):
        name = f"allow_{dtype}_reduced_precision_reduction"
        # Newer releases of PyTorch have a second setting beside it, which stays as it is.
        second = [getattr(matmul, n) for n in (f"{name}_split_k",) if hasattr(matmul, n)]
        before[name] = (getattr(matmul, name), *second) if second else getattr(matmul, name)
        setattr(matmul, name, (False, *second) if second else False)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(matmul, name, value)
